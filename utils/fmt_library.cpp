// What of libfmt 9 is not in its headers, for programs that must run where another libfmt is installed: Debian 12 has
// libfmt.so.9 and Debian 13 libfmt.so.10, and neither has a static library. As the library's own format.cc.
#include <fmt/format-inl.h>

static_assert(FMT_VERSION / 10000 == 9, "written for libfmt 9");

FMT_BEGIN_NAMESPACE
namespace detail {

template auto dragonbox::to_decimal(float x) noexcept -> dragonbox::decimal_fp<float>;
template auto dragonbox::to_decimal(double x) noexcept -> dragonbox::decimal_fp<double>;

template locale_ref::locale_ref(const std::locale& loc);
template auto locale_ref::get<std::locale>() const -> std::locale;

template auto thousands_sep_impl(locale_ref) -> thousands_sep_result<char>;
template auto decimal_point_impl(locale_ref) -> char;

template void buffer<char>::append(const char*, const char*);
template void vformat_to(buffer<char>&, string_view, basic_format_args<FMT_BUFFER_CONTEXT(char)>, locale_ref);

}  // namespace detail
FMT_END_NAMESPACE
