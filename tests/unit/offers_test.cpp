// What two hosts tell each other about how else they can be reached.
#include "coherence/fabric/link/offers.hpp"

#include <gtest/gtest.h>

namespace tarn {
namespace {

const std::vector<Offer> some{{.kind = TransportKind::shm, .text = "machine/path"},
                              {.kind = TransportKind::shm, .text = ""},
                              {.kind = TransportKind::shm, .text = std::string(Transport::offer_size_max, 'x')}};

TEST(Offers, are_read_as_they_were_written) {
    EXPECT_EQ(decode_offers(encode(some)).value(), some);
    EXPECT_EQ(decode_offers("").value(), std::vector<Offer>());
}

TEST(Offers, of_kinds_that_are_not_known_are_skipped) {
    const std::string unknown("\x07\x03new", 5);
    std::vector<Offer> twice = some;
    twice.insert(twice.end(), some.begin(), some.end());
    EXPECT_EQ(decode_offers(unknown + encode(some) + unknown + encode(some)).value(), twice);
}

TEST(Offers, that_are_cut_off_are_refused) {
    const std::string whole = encode(std::vector{some.front()});
    for (size_t size = 1; size < whole.size(); ++size)
        EXPECT_EQ(decode_offers(whole.substr(0, size)).error().code, Errc::protocol) << size;
    EXPECT_EQ(decode_offers(whole + whole.substr(0, 1)).error().code, Errc::protocol);
}

}  // namespace
}  // namespace tarn
