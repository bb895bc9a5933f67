#include <gtest/gtest.h>

#include <cerrno>
#include <map>
#include <set>

#include "frontends/nbd/request.hpp"
#include "tests/support/nbd_bytes.hpp"

namespace tarn::nbd {
namespace {

constexpr Export exported{.size_bytes = 1 << 20, .structured = true, .base_allocation = true};

Errno checked(Command command, uint64_t offset_bytes, uint32_t size_bytes, uint16_t flags = 0,
              const Export& of = exported) {
    const Bytes bytes = Bytes().request(command, 7, offset_bytes, size_bytes, flags);
    const Result<Request> request = decode_request(std::span(bytes.bytes()).first<request_size>());
    EXPECT_TRUE(request);
    return check(*request, of);
}

TEST(NbdRequest, decodes_its_fields) {
    const Bytes bytes = Bytes().request(Command::write, 0x0102030405060708, 0x1122334455667788, 0x99aabbcc, 1);
    const Result<Request> request = decode_request(std::span(bytes.bytes()).first<request_size>());
    ASSERT_TRUE(request);
    EXPECT_EQ(request->command, Command::write);
    EXPECT_EQ(request->offset_bytes, 0x1122334455667788u);
    EXPECT_EQ(request->size_bytes, 0x99aabbccu);
    EXPECT_TRUE(request->has(request_fua));
    EXPECT_EQ(big_endian(request->cookie), 0x0102030405060708u);
}

TEST(NbdRequest, a_wrong_magic_is_no_request) {
    std::vector<std::byte> bytes = Bytes().request(Command::read, 1, 0, 1).bytes();
    bytes[3] ^= std::byte{1};
    EXPECT_FALSE(decode_request(std::span<const std::byte>(bytes).first<request_size>()));
}

Result<Request> decoded_extended(Command command, uint64_t offset_bytes, uint64_t size_bytes, uint16_t flags = 0) {
    const Bytes bytes = Bytes().extended_request(command, 7, offset_bytes, size_bytes, flags);
    return decode_extended_request(std::span(bytes.bytes()).first<extended_request_size>());
}

TEST(NbdRequest, an_extended_one_has_a_long_length) {
    const Result<Request> request = decoded_extended(Command::trim, 0x1122334455667788, 0x0102030405060708, 1);
    ASSERT_TRUE(request);
    EXPECT_EQ(request->command, Command::trim);
    EXPECT_EQ(request->offset_bytes, 0x1122334455667788u);
    EXPECT_EQ(request->size_bytes, 0x0102030405060708u);
    EXPECT_EQ(big_endian(request->cookie), 7u);
    EXPECT_TRUE(request->extended && request->has(request_fua));
    EXPECT_EQ(request->payload_bytes(), 0u);
}

TEST(NbdRequest, each_form_has_its_own_magic) {
    std::vector<std::byte> compact = Bytes().request(Command::read, 1, 0, 1).number(0u).bytes();
    EXPECT_FALSE(decode_extended_request(std::span<const std::byte>(compact).first<extended_request_size>()));
    std::vector<std::byte> extended = Bytes().extended_request(Command::read, 1, 0, 1).bytes();
    EXPECT_FALSE(decode_request(std::span<const std::byte>(extended).first<request_size>()));
}

TEST(NbdRequest, with_extended_headers_a_flag_says_that_a_payload_follows) {
    const Export huge{.size_bytes = uint64_t{1} << 50, .structured = true, .extended = true, .base_allocation = true};
    const auto checked_extended = [&](Command command, uint64_t size_bytes, uint16_t flags = 0) {
        return check(*decoded_extended(command, 4096, size_bytes, flags), huge);
    };
    EXPECT_EQ(checked_extended(Command::write, 4096, request_payload_length), Errno::none);
    // Clients that forget the flag are common.
    EXPECT_EQ(checked_extended(Command::write, 4096), Errno::none);
    EXPECT_EQ(decoded_extended(Command::write, 0, 4096)->payload_bytes(), 4096u);
    EXPECT_FALSE(decoded_extended(Command::write, 0, payload_size_max + 1));
    for (const Command command :
         {Command::read, Command::trim, Command::flush, Command::cache, Command::block_status, Command::write_zeroes}) {
        EXPECT_EQ(checked_extended(command, 4096), Errno::none);
        EXPECT_EQ(checked_extended(command, 4096, request_payload_length), Errno::invalid);
        EXPECT_EQ(decoded_extended(command, 0, 4096, request_payload_length)->payload_bytes(), 4096u);
    }
    EXPECT_TRUE(decoded_extended(Command::write, 0, payload_size_max, request_payload_length));
    EXPECT_FALSE(decoded_extended(Command::write, 0, payload_size_max + 1, request_payload_length));
    EXPECT_EQ(check({Command::write, request_payload_length, 1, 0, 4096}, exported), Errno::invalid);
}

TEST(NbdRequest, with_extended_headers_only_data_is_limited_to_32_bits_and_less) {
    const Export huge{.size_bytes = uint64_t{1} << 50, .structured = true, .extended = true, .base_allocation = true};
    for (const Command command : {Command::trim, Command::cache, Command::block_status, Command::write_zeroes}) {
        EXPECT_EQ(check(*decoded_extended(command, 0, uint64_t{1} << 50), huge), Errno::none);
        EXPECT_NE(check(*decoded_extended(command, 1, uint64_t{1} << 50), huge), Errno::none);
        EXPECT_NE(check(*decoded_extended(command, 4096, UINT64_MAX), huge), Errno::none);
    }
    EXPECT_EQ(check(*decoded_extended(Command::read, 0, uint64_t{1} << 32), huge), Errno::invalid);
    EXPECT_EQ(check(*decoded_extended(Command::write_zeroes, 0, uint64_t{1} << 40, request_fast_zero), huge),
              Errno::none);
}

TEST(NbdRequest, any_range_inside_the_export_works) {
    EXPECT_EQ(checked(Command::read, 0, 1 << 20), Errno::none);
    EXPECT_EQ(checked(Command::read, 511, 3), Errno::none);
    EXPECT_EQ(checked(Command::write, (1 << 20) - 1, 1), Errno::none);
    EXPECT_EQ(checked(Command::read, 1 << 20, 0), Errno::none);
    EXPECT_EQ(checked(Command::cache, 0, 1 << 20), Errno::none);
    EXPECT_EQ(checked(Command::cache, (1 << 20) - 1, 1), Errno::none);
    EXPECT_EQ(checked(Command::cache, 1 << 20, 0), Errno::none);
    EXPECT_EQ(checked(Command::cache, (1 << 20) + 1, 0), Errno::invalid);
}

TEST(NbdRequest, past_the_end_is_invalid_or_no_space) {
    for (const Command command : {Command::read, Command::trim, Command::cache, Command::block_status}) {
        EXPECT_EQ(checked(command, (1 << 20) - 1, 2), Errno::invalid);
        EXPECT_EQ(checked(command, UINT64_MAX, 1), Errno::invalid);
    }
    for (const Command command : {Command::write, Command::write_zeroes}) {
        EXPECT_EQ(checked(command, (1 << 20) - 1, 2), Errno::no_space);
        EXPECT_EQ(checked(command, UINT64_MAX - 1, 4), Errno::no_space);
    }
}

TEST(NbdRequest, a_read_only_export_permits_no_change) {
    const Export read_only{.size_bytes = 1 << 20, .structured = true, .base_allocation = true, .read_only = true};
    for (const Command command : {Command::write, Command::trim, Command::write_zeroes})
        EXPECT_EQ(checked(command, 0, 4096, 0, read_only), Errno::not_permitted);
    for (const Command command : {Command::read, Command::flush, Command::cache, Command::block_status})
        EXPECT_EQ(checked(command, 0, 4096, 0, read_only), Errno::none);
    EXPECT_TRUE(transmission_flags(read_only) & transmission_read_only);
    EXPECT_FALSE(transmission_flags(exported) & transmission_read_only);
}

TEST(NbdRequest, payloads_have_a_limit_and_trims_have_none) {
    const Export huge{.size_bytes = uint64_t{1} << 50};
    EXPECT_EQ(checked(Command::read, 0, payload_size_max, 0, huge), Errno::none);
    EXPECT_EQ(checked(Command::read, 0, payload_size_max + 1, 0, huge), Errno::invalid);
    EXPECT_EQ(checked(Command::write, 0, payload_size_max + 1, 0, huge), Errno::invalid);
    EXPECT_EQ(checked(Command::trim, 0, UINT32_MAX, 0, huge), Errno::none);
    EXPECT_EQ(checked(Command::write_zeroes, 0, UINT32_MAX, 0, huge), Errno::none);
}

TEST(NbdRequest, flags_belong_to_commands) {
    EXPECT_EQ(checked(Command::read, 0, 1, request_dont_fragment), Errno::none);
    EXPECT_EQ(checked(Command::read, 0, 1, request_dont_fragment, {.size_bytes = 10}), Errno::invalid);
    EXPECT_EQ(checked(Command::write, 0, 1, request_fua), Errno::none);
    EXPECT_EQ(checked(Command::write, 0, 1, request_no_hole), Errno::invalid);
    EXPECT_EQ(checked(Command::write, 0, 1, 1 << 9), Errno::invalid);
    EXPECT_EQ(checked(Command::block_status, 0, 1, request_one_extent), Errno::none);
    EXPECT_EQ(checked(Command::block_status, 0, 1, 0, {.size_bytes = 10}), Errno::invalid);
    EXPECT_EQ(checked(Command::block_status, 0, 1, 0, {.size_bytes = 10, .tier = true}), Errno::none);
    EXPECT_EQ(checked(Command::block_status, 0, 0), Errno::invalid);
    EXPECT_EQ(checked(static_cast<Command>(77), 0, 0), Errno::invalid);
}

TEST(NbdRequest, fast_zero_is_refused_where_something_would_be_written) {
    EXPECT_EQ(checked(Command::write_zeroes, 4096, 8192, request_fast_zero), Errno::none);
    EXPECT_EQ(checked(Command::write_zeroes, 4096, 100, request_fast_zero), Errno::unsupported);
    EXPECT_EQ(checked(Command::write_zeroes, 1, 4096, request_fast_zero), Errno::unsupported);
    EXPECT_EQ(checked(Command::write_zeroes, 0, 4096, request_fast_zero | request_no_hole), Errno::unsupported);
}

TEST(NbdRequest, each_of_our_errors_is_one_that_the_protocol_has) {
    const std::map<Errc, uint32_t> numbers{
        {Errc::io, 5},           {Errc::no_space, 28}, {Errc::not_found, 5},   {Errc::exists, 5},
        {Errc::busy, 5},         {Errc::invalid, 22},  {Errc::refused, 1},     {Errc::protocol, 5},
        {Errc::unavailable, 5},  {Errc::corrupt, 5},   {Errc::cancelled, 108}, {Errc::closed, 5},
        {Errc::unsupported, 95},
    };
    const std::set<uint32_t> on_the_wire{0, 1, 5, 12, 22, 28, 75, 95, 108};
    uint8_t count = 0;
    for (; to_string(static_cast<Errc>(count)) != std::string_view("unknown"); ++count) {
        const auto code = static_cast<Errc>(count);
        ASSERT_TRUE(numbers.contains(code)) << to_string(code);
        for (const int sys_errno : {0, EIO, ENOSPC, EACCES, ENOMEM, EOVERFLOW, EHOSTUNREACH})
            EXPECT_TRUE(on_the_wire.contains(static_cast<uint32_t>(to_errno(Error{code, sys_errno}))));
        EXPECT_EQ(static_cast<uint32_t>(to_errno(Error{code})), numbers.at(code)) << to_string(code);
    }
    EXPECT_EQ(count, numbers.size());
    EXPECT_EQ(to_errno(Result<>{}), Errno::none);
}

TEST(NbdRequest, a_full_file_system_below_the_store_and_a_quota_are_no_space) {
    for (const int sys_errno : {ENOSPC, EDQUOT, EFBIG}) {
        EXPECT_EQ(to_errno(Error{Errc::io, sys_errno, "store.write"}), Errno::no_space) << sys_errno;
        EXPECT_EQ(to_errno(Error{Errc::no_space, sys_errno, "store.write"}), Errno::no_space) << sys_errno;
    }
    EXPECT_EQ(to_errno(Error{Errc::io, EIO, "store.write"}), Errno::io);
}

}  // namespace
}  // namespace tarn::nbd
