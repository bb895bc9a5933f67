#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>

#include "frontends/nbd/admission.hpp"

namespace tarn::nbd {
namespace {

sockaddr_storage address_of(const char* text) {
    sockaddr_storage address{};
    auto& ipv4 = reinterpret_cast<sockaddr_in&>(address);
    auto& ipv6 = reinterpret_cast<sockaddr_in6&>(address);
    if (::inet_pton(AF_INET, text, &ipv4.sin_addr) == 1)
        ipv4.sin_family = AF_INET;
    else if (::inet_pton(AF_INET6, text, &ipv6.sin6_addr) == 1)
        ipv6.sin6_family = AF_INET6;
    return address;
}

bool contains(const char* network, const char* address) {
    const Result<Network> parsed = Network::parse(network);
    EXPECT_TRUE(parsed) << network;
    return parsed && parsed->contains(address_of(address));
}

TEST(NbdNetwork, contains_the_addresses_with_its_prefix) {
    EXPECT_TRUE(contains("10.0.0.0/8", "10.255.0.1"));
    EXPECT_FALSE(contains("10.0.0.0/8", "11.0.0.1"));
    EXPECT_TRUE(contains("192.0.2.128/25", "192.0.2.255"));
    EXPECT_FALSE(contains("192.0.2.128/25", "192.0.2.127"));
    EXPECT_TRUE(contains("fd00::/8", "fdff::1"));
    EXPECT_FALSE(contains("fd00::/8", "fc00::1"));
    EXPECT_TRUE(contains("2001:db8:0:4000::/50", "2001:db8:0:7fff::1"));
    EXPECT_FALSE(contains("2001:db8:0:4000::/50", "2001:db8:0:8000::1"));
}

TEST(NbdNetwork, without_a_prefix_is_one_address) {
    EXPECT_TRUE(contains("192.0.2.1", "192.0.2.1"));
    EXPECT_FALSE(contains("192.0.2.1", "192.0.2.0"));
    EXPECT_TRUE(contains("::1", "::1"));
    EXPECT_FALSE(contains("::1", "::2"));
}

TEST(NbdNetwork, of_all_addresses_is_of_one_family) {
    EXPECT_TRUE(contains("0.0.0.0/0", "203.0.113.9"));
    EXPECT_FALSE(contains("0.0.0.0/0", "fd00::1"));
    EXPECT_TRUE(contains("::/0", "fd00::1"));
    EXPECT_FALSE(contains("::/0", "203.0.113.9"));
    EXPECT_FALSE(contains("::/0", "::ffff:203.0.113.9")) << "a client over IPv4, as a socket of both families says it";
    EXPECT_TRUE(contains("203.0.113.0/24", "::ffff:203.0.113.9"));
}

TEST(NbdNetwork, that_is_no_network_is_refused) {
    for (const char* text :
         {"", "/8", "10.0.0.0/", "10.0.0.0/33", "10.0.0.0/8x", "10.0.0.0/-1", "10.0.0/8", "fd00::/129", "host",
          "10.0.0.0/8/8", "::ffff:10.0.0.0/104", "10.0.0.1/8", "fd00::1/64", "0.0.0.1/0"}) {
        const Result<Network> parsed = Network::parse(text);
        ASSERT_FALSE(parsed) << text;
        EXPECT_EQ(parsed.error().code, Errc::invalid);
    }
}

TEST(NbdAdmission, without_networks_lets_everybody_in) {
    Admission admission;
    EXPECT_TRUE(admission.admits(address_of("203.0.113.9")));
    admission.networks = {*Network::parse("10.0.0.0/8"), *Network::parse("fd00::/8")};
    EXPECT_TRUE(admission.admits(address_of("10.1.2.3")));
    EXPECT_TRUE(admission.admits(address_of("fd00::1")));
    EXPECT_FALSE(admission.admits(address_of("203.0.113.9")));
    EXPECT_FALSE(admission.admits(sockaddr_storage{})) << "nobody knows where it comes from";
}

TEST(NbdAccessLists, name_who_may_use_a_volume) {
    AccessLists lists;
    lists.set("secret", {"psk:alice", "cert:host-b"});
    lists.set("closed", {});
    const std::vector<std::string> alice = {"psk:alice"};
    const std::vector<std::string> b = {"cert:host-c", "cert:host-b"};
    const std::vector<std::string> others = {"psk:host-b", "cert:alice", "alice", "cert:host-b.example"};
    EXPECT_TRUE(lists.allows("secret", alice));
    EXPECT_TRUE(lists.allows("secret", b)) << "any of a certificate's names";
    EXPECT_FALSE(lists.allows("secret", others));
    EXPECT_FALSE(lists.allows("secret", {}));
    EXPECT_FALSE(lists.allows("closed", alice));
    EXPECT_TRUE(lists.allows("open", {})) << "a volume without a list";
}

TEST(NbdAccessLists, say_what_is_wrong_with_a_name) {
    for (const char* good : {"psk:a", "cert:host-b.example", "psk:a:b"}) EXPECT_FALSE(AccessLists::mistake_in(good));
    for (const char* bad : {"", "alice", "psk:", "cert:", "user:alice", "PSK:alice"})
        EXPECT_TRUE(AccessLists::mistake_in(bad)) << bad;
}

}  // namespace
}  // namespace tarn::nbd
