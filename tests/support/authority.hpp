// For tests: an authority that issues certificates and lists of revoked ones, made by GnuTLS without a file.
#pragma once

#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <gtest/gtest.h>

#include <ctime>
#include <string>
#include <vector>

namespace tarn::nbd {

class Authority {
  public:
    struct Pair {
        std::string certificate;  // PEM
        std::string key;
    };
    struct Subject {
        std::string common_name;
        std::vector<std::string> dns_names;
        const char* purpose = GNUTLS_KP_TLS_WWW_CLIENT;
    };

    explicit Authority(const std::string& name = "tarn CA") {
        make_key(key_);
        gnutls_x509_crt_init(&certificate_);
        describe(certificate_, {.common_name = name, .dns_names = {}}, key_);
        EXPECT_EQ(gnutls_x509_crt_set_basic_constraints(certificate_, 1, -1), 0);
        EXPECT_EQ(gnutls_x509_crt_set_key_usage(certificate_, GNUTLS_KEY_KEY_CERT_SIGN | GNUTLS_KEY_CRL_SIGN), 0);
        EXPECT_EQ(gnutls_x509_crt_sign2(certificate_, certificate_, key_, GNUTLS_DIG_SHA256, 0), 0);
    }
    Authority(const Authority&) = delete;
    ~Authority() {
        gnutls_x509_crt_deinit(certificate_);
        gnutls_x509_privkey_deinit(key_);
    }

    std::string certificate() const { return pem_of(gnutls_x509_crt_export2, certificate_); }

    Pair issue(const Subject& subject) {
        gnutls_x509_privkey_t key = nullptr;
        gnutls_x509_crt_t certificate = nullptr;
        make_key(key);
        gnutls_x509_crt_init(&certificate);
        describe(certificate, subject, key);
        EXPECT_EQ(gnutls_x509_crt_set_key_purpose_oid(certificate, subject.purpose, 0), 0);
        EXPECT_EQ(gnutls_x509_crt_sign2(certificate, certificate_, key_, GNUTLS_DIG_SHA256, 0), 0);
        Pair pair{.certificate = pem_of(gnutls_x509_crt_export2, certificate),
                  .key = pem_of(gnutls_x509_privkey_export2, key)};
        gnutls_x509_crt_deinit(certificate);
        gnutls_x509_privkey_deinit(key);
        return pair;
    }

    // A list with the certificate of that number, counted from 1 in the order of issue; for how long it is good.
    std::string revoke(unsigned char number, time_t good_for_seconds = hour_seconds) const {
        gnutls_x509_crl_t list = nullptr;
        gnutls_x509_crl_init(&list);
        const time_t now = std::time(nullptr);
        const std::vector<unsigned char> serial = serial_of(number);
        EXPECT_EQ(gnutls_x509_crl_set_version(list, 2), 0);
        EXPECT_EQ(gnutls_x509_crl_set_this_update(list, now - hour_seconds), 0);
        EXPECT_EQ(gnutls_x509_crl_set_next_update(list, now + good_for_seconds), 0);
        EXPECT_EQ(gnutls_x509_crl_set_crt_serial(list, serial.data(), serial.size(), now - hour_seconds), 0);
        EXPECT_EQ(gnutls_x509_crl_sign2(list, certificate_, key_, GNUTLS_DIG_SHA256, 0), 0);
        std::string pem = pem_of(gnutls_x509_crl_export2, list);
        gnutls_x509_crl_deinit(list);
        return pem;
    }

  private:
    static constexpr time_t hour_seconds = 3600;

    static void make_key(gnutls_x509_privkey_t& key) {
        gnutls_x509_privkey_init(&key);
        EXPECT_EQ(
            gnutls_x509_privkey_generate(key, GNUTLS_PK_ECDSA, GNUTLS_CURVE_TO_BITS(GNUTLS_ECC_CURVE_SECP256R1), 0), 0);
    }
    static std::vector<unsigned char> serial_of(unsigned char number) { return {1, number}; }
    void describe(gnutls_x509_crt_t certificate, const Subject& subject, gnutls_x509_privkey_t key) {
        const time_t now = std::time(nullptr);
        const std::vector<unsigned char> serial = serial_of(issued_++);
        EXPECT_EQ(gnutls_x509_crt_set_version(certificate, 3), 0);
        EXPECT_EQ(gnutls_x509_crt_set_serial(certificate, serial.data(), serial.size()), 0);
        EXPECT_EQ(gnutls_x509_crt_set_activation_time(certificate, now - hour_seconds), 0);
        EXPECT_EQ(gnutls_x509_crt_set_expiration_time(certificate, now + hour_seconds), 0);
        EXPECT_EQ(gnutls_x509_crt_set_key(certificate, key), 0);
        EXPECT_EQ(gnutls_x509_crt_set_dn_by_oid(certificate, GNUTLS_OID_X520_COMMON_NAME, 0, subject.common_name.data(),
                                                static_cast<unsigned>(subject.common_name.size())),
                  0);
        if (subject.dns_names.empty()) return;
        std::string names;
        for (const std::string& name : subject.dns_names) names += element(dns_name_tag, name);
        const std::string extension = element(sequence_tag, names);
        EXPECT_EQ(gnutls_x509_crt_set_extension_by_oid(certificate, GNUTLS_X509EXT_OID_SAN, extension.data(),
                                                       static_cast<unsigned>(extension.size()), 0),
                  0);
    }
    // In DER, where a name may have any bytes; GnuTLS's own function ends it with the first NUL.
    static constexpr char dns_name_tag = '\x82';
    static constexpr char sequence_tag = '\x30';
    static std::string element(char tag, const std::string& contents) {
        constexpr char two_bytes = '\x82';
        const auto size = static_cast<unsigned>(contents.size());
        EXPECT_TRUE(size < 0x80 || size > 0xff) << "a size in one byte more than these two forms have";
        const auto low = static_cast<char>(size);
        const std::string head =
            size < 0x80 ? std::string{tag, low} : std::string{tag, two_bytes, static_cast<char>(size >> 8), low};
        return head + contents;
    }
    template <class Object>
    static std::string pem_of(int (*write)(Object, gnutls_x509_crt_fmt_t, gnutls_datum_t*), Object object) {
        gnutls_datum_t pem{};
        EXPECT_EQ(write(object, GNUTLS_X509_FMT_PEM, &pem), 0);
        std::string text(reinterpret_cast<const char*>(pem.data), pem.size);
        gnutls_free(pem.data);
        return text;
    }

    gnutls_x509_privkey_t key_ = nullptr;
    gnutls_x509_crt_t certificate_ = nullptr;
    unsigned char issued_ = 0;
};

}  // namespace tarn::nbd
