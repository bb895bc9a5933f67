// Certificates, from the files of a server to what a client is called by: both ends in memory, without a socket.
#include <gnutls/gnutls.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>

#include "frontends/nbd/tls_session.hpp"
#include "tests/support/authority.hpp"
#include "tests/support/scratch_directory.hpp"
#include "tests/support/tls_client.hpp"

namespace tarn::nbd {
namespace {

// A client's end, with or without a certificate, that takes any server for the right one.
class Visitor {
  public:
    explicit Visitor(const std::optional<Authority::Pair>& pair) {
        gnutls_init(&session_, GNUTLS_CLIENT | GNUTLS_NONBLOCK);
        gnutls_certificate_allocate_credentials(&credentials_);
        if (pair) {
            const gnutls_datum_t certificate = datum_of(pair->certificate);
            const gnutls_datum_t key = datum_of(pair->key);
            EXPECT_EQ(gnutls_certificate_set_x509_key_mem(credentials_, &certificate, &key, GNUTLS_X509_FMT_PEM), 0);
        }
        gnutls_credentials_set(session_, GNUTLS_CRD_CERTIFICATE, credentials_);
        gnutls_set_default_priority(session_);
        gnutls_transport_set_ptr(session_, this);
        gnutls_transport_set_pull_function(session_, pull);
        gnutls_transport_set_push_function(session_, push);
    }
    Visitor(const Visitor&) = delete;
    ~Visitor() {
        gnutls_deinit(session_);
        gnutls_certificate_free_credentials(credentials_);
    }

    // One step with what the server has said; what it says goes to the server.
    void step(TlsSession& server) {
        std::vector<std::byte>& said = server.output();
        heard_.insert(heard_.end(), said.begin(), said.end());
        said.clear();
        gnutls_handshake(session_);
        server.keep(says_);
        says_.clear();
    }

  private:
    static gnutls_datum_t datum_of(const std::string& text) {
        return {.data = reinterpret_cast<unsigned char*>(const_cast<char*>(text.data())),
                .size = static_cast<unsigned>(text.size())};
    }
    static ssize_t pull(gnutls_transport_ptr_t self, void* into, size_t size) {
        Visitor& visitor = *static_cast<Visitor*>(self);
        const size_t count = std::min(size, visitor.heard_.size());
        if (count == 0) {
            gnutls_transport_set_errno(visitor.session_, EAGAIN);
            return -1;
        }
        std::memcpy(into, visitor.heard_.data(), count);
        visitor.heard_.erase(visitor.heard_.begin(), visitor.heard_.begin() + static_cast<ptrdiff_t>(count));
        return static_cast<ssize_t>(count);
    }
    static ssize_t push(gnutls_transport_ptr_t self, const void* bytes, size_t size) {
        const auto* const from = static_cast<const std::byte*>(bytes);
        std::vector<std::byte>& says = static_cast<Visitor*>(self)->says_;
        says.insert(says.end(), from, from + size);
        return static_cast<ssize_t>(size);
    }

    gnutls_session_t session_ = nullptr;
    gnutls_certificate_credentials_t credentials_ = nullptr;
    std::vector<std::byte> heard_;
    std::vector<std::byte> says_;
};

class NbdTlsCertificates : public testing::Test {
  protected:
    NbdTlsCertificates() {
        std::filesystem::create_directory(files_.directory);
        const Authority::Pair own =
            authority_.issue({.common_name = "a", .dns_names = {"a"}, .purpose = GNUTLS_KP_TLS_WWW_SERVER});
        write("ca-cert.pem", authority_.certificate());
        write("server-cert.pem", own.certificate);
        write("server-key.pem", own.key);
    }

    std::string path_of(const std::string& name) const { return files_.directory + "/" + name; }
    void write(const std::string& name, const std::string& text) const {
        std::ofstream(path_of(name)) << text;
        std::filesystem::permissions(path_of(name), std::filesystem::perms(0600));
    }

    struct Met {
        bool is_let_in = false;
        std::vector<std::string> identities;
        std::string why;  // it is not
    };
    Met meet(const std::optional<Authority::Pair>& client) const {
        const auto credentials = TlsCredentials::load(files_);
        EXPECT_TRUE(credentials) << credentials.error();
        if (!credentials) return {};
        const std::unique_ptr<TlsSession> server = std::move(*TlsSession::create(*credentials));
        Visitor visitor(client);
        for (int steps = 0; steps < 10; ++steps) {
            visitor.step(*server);
            const Result<bool> done = server->shake_hands();
            if (!done || *done)
                return {.is_let_in = done.has_value(), .identities = server->identities(), .why = server->why()};
        }
        ADD_FAILURE() << "a handshake without an end";
        return {};
    }

    ScratchDirectory directory_;
    Authority authority_;
    TlsFiles files_{.directory = directory_ / "tls", .psk_file = {}, .verify_peer = true};
};

using Identities = std::vector<std::string>;

TEST_F(NbdTlsCertificates, name_the_client_by_its_common_name) {
    EXPECT_EQ(meet(authority_.issue({.common_name = "alice", .dns_names = {}})).identities, Identities{"cert:alice"});
}

TEST_F(NbdTlsCertificates, with_dns_names_count_by_these_alone) {
    const Met met = meet(authority_.issue({.common_name = "alice", .dns_names = {"host-b", "host-b.example"}}));
    EXPECT_EQ(met.identities, (Identities{"cert:host-b", "cert:host-b.example"}));
}

// Beyond the room for names: what it is called by is then nothing that somebody else might be.
TEST_F(NbdTlsCertificates, with_a_dns_name_that_is_too_long_name_nobody) {
    const Met met = meet(authority_.issue({.common_name = "alice", .dns_names = {std::string(300, 'b')}}));
    EXPECT_TRUE(met.is_let_in) << met.why;
    EXPECT_EQ(met.identities, Identities{});
}

TEST_F(NbdTlsCertificates, whose_name_has_a_nul_in_it_do_not_name_what_is_before) {
    const std::string name("alice\0.example", 14);
    const Met met = meet(authority_.issue({.common_name = "c", .dns_names = {name, "host-b"}}));
    EXPECT_EQ(met.identities, Identities{"cert:host-b"}) << met.why;
}

TEST_F(NbdTlsCertificates, of_servers_are_not_those_of_clients) {
    const Met met = meet(authority_.issue({.common_name = "b", .dns_names = {}, .purpose = GNUTLS_KP_TLS_WWW_SERVER}));
    EXPECT_FALSE(met.is_let_in);
    EXPECT_TRUE(met.why.starts_with("client certificate: ")) << met.why;
}

TEST_F(NbdTlsCertificates, of_another_authority_are_refused_also_if_it_has_the_same_name) {
    Authority other;
    EXPECT_FALSE(meet(other.issue({.common_name = "alice", .dns_names = {}})).is_let_in);
}

TEST_F(NbdTlsCertificates, are_needed_where_they_are_asked_for) {
    EXPECT_FALSE(meet(std::nullopt).is_let_in);
    files_.verify_peer = false;
    const Met met = meet(std::nullopt);
    EXPECT_TRUE(met.is_let_in) << met.why;
    EXPECT_EQ(met.identities, Identities{});
}

TEST_F(NbdTlsCertificates, that_the_authority_has_revoked_are_refused) {
    const Authority::Pair alice = authority_.issue({.common_name = "alice", .dns_names = {}});
    const Authority::Pair bob = authority_.issue({.common_name = "bob", .dns_names = {}});
    write("ca-crl.pem", authority_.revoke(2));
    EXPECT_FALSE(meet(alice).is_let_in);
    EXPECT_TRUE(meet(bob).is_let_in);
}

// Nobody can say any more whose certificate is good. Pre-shared keys are.
TEST_F(NbdTlsCertificates, are_not_good_once_the_list_of_revoked_ones_has_expired) {
    const Authority::Pair bob = authority_.issue({.common_name = "bob", .dns_names = {}});
    write("ca-crl.pem", authority_.revoke(7, -1));
    const Met met = meet(bob);
    EXPECT_FALSE(met.is_let_in);
    EXPECT_TRUE(met.why.contains("ca-crl.pem has expired")) << met.why;
    Authority other("other CA");
    write("ca-cert.pem", authority_.certificate() + other.certificate());
    write("ca-crl.pem", authority_.revoke(7) + other.revoke(7, -1));
    EXPECT_FALSE(meet(bob).is_let_in) << "one of two";
    write("ca-crl.pem", authority_.revoke(7) + other.revoke(7));
    EXPECT_TRUE(meet(bob).is_let_in);
    files_.verify_peer = false;
    write("ca-crl.pem", authority_.revoke(7, -1));
    EXPECT_TRUE(meet(std::nullopt).is_let_in) << "who needs none, and has none";
}

TEST_F(NbdTlsCertificates, are_revoked_by_no_list_of_another_authority) {
    Authority other("other CA");
    const Authority same_name;
    for (const std::string& list : {other.revoke(2), same_name.revoke(2), authority_.revoke(3) + other.revoke(2)}) {
        write("ca-crl.pem", list);
        const auto loaded = TlsCredentials::load(files_);
        ASSERT_FALSE(loaded);
        EXPECT_EQ(loaded.error(), path_of("ca-crl.pem") +
                                      ": no authority of ca-cert.pem has signed it; put that authority's own list "
                                      "there, or remove the file and restart tarnd to revoke nothing");
    }
    // Of two authorities each has its own.
    write("ca-cert.pem", authority_.certificate() + other.certificate());
    write("ca-crl.pem", authority_.revoke(3) + other.revoke(1));
    EXPECT_TRUE(TlsCredentials::load(files_));
    EXPECT_FALSE(meet(other.issue({.common_name = "alice", .dns_names = {}})).is_let_in);
}

TEST_F(NbdTlsCertificates, that_are_gone_stay_in_use) {
    files_.psk_file = tls_files(directory_).psk_file;
    const auto before = TlsCredentials::load(files_);
    ASSERT_TRUE(before) << before.error();
    EXPECT_TRUE(TlsCredentials::load_anew(files_, **before));
    std::filesystem::rename(files_.directory, directory_ / "elsewhere");
    const auto anew = TlsCredentials::load_anew(files_, **before);
    ASSERT_FALSE(anew);
    EXPECT_EQ(
        anew.error(),
        path_of("server-cert.pem") +
            ": no such file, but it was there before; put it back, or restart tarnd to go on without certificates");
    std::filesystem::rename(directory_ / "elsewhere", files_.directory);
    write("ca-crl.pem", authority_.revoke(2));
    const auto revoking = TlsCredentials::load(files_);
    ASSERT_TRUE(revoking) << revoking.error();
    EXPECT_TRUE(TlsCredentials::load_anew(files_, **revoking));
    EXPECT_TRUE(TlsCredentials::load_anew(files_, **before));
    std::filesystem::remove(path_of("ca-crl.pem"));
    const auto forgiving = TlsCredentials::load_anew(files_, **revoking);
    ASSERT_FALSE(forgiving);
    EXPECT_EQ(forgiving.error(),
              path_of("ca-crl.pem") +
                  ": no such file, but it was there before; put it back, or restart tarnd to revoke nothing any more");
    std::filesystem::rename(files_.directory, directory_ / "elsewhere");
    // Who never had any goes on with keys alone.
    const auto keys_alone = TlsCredentials::load(files_);
    ASSERT_TRUE(keys_alone) << keys_alone.error();
    EXPECT_TRUE(TlsCredentials::load_anew(files_, **keys_alone));
}

TEST_F(NbdTlsCertificates, a_list_that_cannot_be_read_is_a_mistake) {
    std::filesystem::create_directory(path_of("ca-crl.pem"));
    EXPECT_FALSE(TlsCredentials::load(files_));
}

TEST_F(NbdTlsCertificates, a_certificate_is_for_the_names_and_addresses_in_it) {
    const Authority::Pair own = authority_.issue(
        {.common_name = "x", .dns_names = {"a.example", "*.b.example"}, .purpose = GNUTLS_KP_TLS_WWW_SERVER});
    write("server-cert.pem", own.certificate);
    write("server-key.pem", own.key);
    const auto credentials = TlsCredentials::load(files_);
    ASSERT_TRUE(credentials) << credentials.error();
    EXPECT_TRUE((*credentials)->has_certificate());
    EXPECT_TRUE((*credentials)->is_certified("a.example"));
    EXPECT_TRUE((*credentials)->is_certified("c.b.example"));
    EXPECT_FALSE((*credentials)->is_certified("b.example"));
    EXPECT_FALSE((*credentials)->is_certified("10.0.0.1"));
}

}  // namespace
}  // namespace tarn::nbd
