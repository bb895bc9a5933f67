#include "daemon/attachtab/unit_name.hpp"

#include <fmt/format.h>

namespace tarn {

namespace {

std::string escaped(std::string_view text) {
    constexpr std::string_view plain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789:_.";
    std::string name;
    for (const char c : text) {
        if (c == '/')
            name += '-';
        else if (plain.contains(c) && (c != '.' || !name.empty()))
            name += c;
        else
            name += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    }
    return name;
}

}  // namespace

std::string attach_unit_of(std::string_view volume) {
    return fmt::format("tarn-attach@{}.service", escaped(volume));
}

std::string mount_unit_of(std::string_view directory) {
    return directory == "/" ? "-.mount" : escaped(directory.substr(1)) + ".mount";
}

}  // namespace tarn
