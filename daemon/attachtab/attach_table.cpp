#include "daemon/attachtab/attach_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <expected>
#include <optional>

#include "daemon/attachments/block_device.hpp"
#include "daemon/configuration/text.hpp"
#include "frontends/volumes/volumes.hpp"

namespace tarn {

namespace {

constexpr std::string_view blanks = " \t\r";
constexpr std::array<std::string_view, 4> option_names = {"read-only", "block-size", "connections", "noauto"};

// Cuts off the part before the first of the separators, and these too.
std::string_view take_part(std::string_view& rest, std::string_view separators) {
    const std::string_view part = rest.substr(0, rest.find_first_of(separators));
    rest.remove_prefix(std::min(part.size() + 1, rest.size()));
    return part;
}

std::vector<std::string_view> fields_of(std::string_view line) {
    std::vector<std::string_view> fields;
    while (!line.empty())
        if (const std::string_view field = take_part(line, blanks); !field.empty()) fields.push_back(field);
    return fields;
}

// As in fstab, \040 is a blank. Nothing: a backslash has no three octal digits of a byte behind it.
std::optional<std::string> unescaped(std::string_view field) {
    std::string text;
    while (!field.empty()) {
        const size_t plain = std::min(field.find('\\'), field.size());
        text += field.substr(0, plain);
        field.remove_prefix(plain);
        if (field.empty()) break;
        const std::string_view digits = field.substr(1, 3);
        uint8_t byte = 0;
        const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), byte, 8);
        if (digits.size() != 3 || error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
        text += static_cast<char>(byte);
        field.remove_prefix(4);
    }
    return text;
}

std::optional<unsigned> parse_number(std::string_view text) {
    unsigned number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    return error == std::errc() && end == text.data() + text.size() ? std::optional(number) : std::nullopt;
}

// Returns what is wrong, or nothing.
std::string take_option(AttachTable::Line& line, std::string_view option) {
    std::string_view value = option;
    const std::string_view name = take_part(value, "=");
    const std::optional<unsigned> number = parse_number(value);
    const bool has_value = option.size() != name.size();
    if (name == "block-size") {
        if (number != 512u && number != 4096u) return fmt::format("{}: the block size is 512 or 4096", option);
        line.options.block_size_bytes = *number;
    } else if (name == "connections") {
        if (!number || *number == 0 || *number > AttachOptions::connections_max)
            return fmt::format("{}: there are 1 to {} connections", option, AttachOptions::connections_max);
        line.options.connections = *number;
    } else if (option == "read-only") {
        line.options.read_only = true;
    } else if (option == "noauto") {
        line.at_boot = false;
    } else if (has_value && std::ranges::find(option_names, name) != option_names.end()) {
        return fmt::format("{}: {} has no value", option, name);
    } else {
        const auto meant = nearest_name(name, option_names);
        return fmt::format("unknown option \"{}\"{}", name, meant ? fmt::format("; is {} meant?", *meant) : "");
    }
    return "";
}

using Parsed = std::expected<AttachTable::Line, AttachTable::Mistake>;

Parsed parse_line(unsigned number, const std::vector<std::string_view>& fields) {
    AttachTable::Mistake mistake{.number = number, .volume = {}, .reason = {}};
    const auto wrong = [&](std::string reason) {
        mistake.reason = std::move(reason);
        return std::unexpected(mistake);
    };
    std::optional<std::string> volume = unescaped(fields[0]);
    if (!volume) return wrong("in a name a backslash is written \\134, and a blank \\040");
    if (!valid_volume_name(*volume)) return wrong(fmt::format("\"{}\" cannot be a volume's name", *volume));
    mistake.volume = *volume;
    if (fields.size() > 2)
        return wrong(
            "more than a volume and its options: options are joined by commas, and a blank in a name is \\040");
    AttachTable::Line line{.options = {.volume = *std::move(volume)}, .number = number};
    std::string_view options = fields.size() == 2 ? fields[1] : "";
    while (!options.empty())
        if (std::string reason = take_option(line, take_part(options, ",")); !reason.empty())
            return wrong(std::move(reason));
    return line;
}

}  // namespace

AttachTable AttachTable::parse(std::string_view text) {
    AttachTable table;
    for (unsigned number = 1; !text.empty(); ++number) {
        const std::vector<std::string_view> fields = fields_of(take_part(text, "\n"));
        if (fields.empty() || fields[0].starts_with('#')) continue;
        Parsed line = parse_line(number, fields);
        if (!line) {
            table.mistakes.push_back(std::move(line).error());
            continue;
        }
        const std::string& volume = line->options.volume;
        const auto twin = std::ranges::find(table.lines, link_of(volume),
                                            [](const Line& each) { return link_of(each.options.volume); });
        if (twin == table.lines.end())
            table.lines.push_back(*std::move(line));
        else
            table.mistakes.push_back({.number = number,
                                      .volume = volume,
                                      .reason = twin->options.volume == volume
                                                    ? fmt::format("line {} is about the same volume", twin->number)
                                                    : fmt::format("the device of line {} has the same link, {}",
                                                                  twin->number, link_of(volume))});
    }
    return table;
}

}  // namespace tarn
