#include "daemon/cli/failure.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace tarn {

namespace {

struct Advice {
    std::string_view verb;  // empty: any
    std::string_view code;
    std::string_view cause;  // empty: as the daemon says
    std::string_view hint;   // {} is the object
};

// The first that fits.
constexpr std::array<Advice, 23> advices = {{
    {"mount", "not_found", "no such directory", "mkdir {}"},
    {"mount", "busy", "", "an empty directory; tarn mount lists the mounts"},
    {"umount", "not_found", "nothing of tarn is mounted there",
     "tarn mount, which lists the mounts; umount -l {} only if a tarnd that has crashed left one there"},
    {"attach", "unsupported", "", "modprobe nbd, in Linux 5.14 or newer"},
    {"attach", "not_found", "no such volume", "tarn list"},
    {"attach", "busy", "", "tarn attached, or tarn show {}, which names a host that holds it; --take-over takes it"},
    {"attach", "no_space", "", "tarn detach one"},
    {"detach", "not_found", "", "tarn attached"},
    {"detach", "busy", "", "umount it, end what has it open; --force ends it all the same, and its requests fail"},
    {"host forget", "not_found", "", "tarn status, which names the hosts"},
    {"verify", "busy", "", "tarn verify --stop"},
    {"show", "not_found", "no such volume", "tarn list"},
    {"resize", "not_found", "no such volume", "tarn list"},
    {"delete", "not_found", "no such volume", "tarn list"},
    {"flush", "not_found", "no such volume", "tarn list"},
    {"flush", "io", "", "tarn status, which names hosts that are away and what is lost"},
    {"export", "not_found", "no such volume", "tarn list"},
    {"verify", "not_found", "no such volume", "tarn list"},
    {"create", "exists", "", "tarn list"},
    {"create", "invalid", "", "tarn create --help"},
    {"", "would_shrink", "", "--force, if that is what you want"},
    {"", "no_space", "", "tarn status, which shows the space; delete or trim something"},
    {"", "unavailable", "", "tarn status, to see which host is away"},
}};

// By their numbers.
constexpr std::array<std::string_view, 8> exit_codes = {"ok",   "failed",      "usage",     "not_found",
                                                        "busy", "unreachable", "timed_out", "permission"};

Exit exit_of(std::string_view code) {
    if (code == "invalid") return Exit::usage;
    if (code == "unavailable") return Exit::unreachable;
    if (code == "refused") return Exit::permission;
    if (code == "not_found") return Exit::not_found;
    return code == "busy" || code == "exists" ? Exit::busy : Exit::failed;
}

}  // namespace

std::string_view code_of(Exit exit) {
    return exit_codes[static_cast<size_t>(exit)];
}

Exit exit_of(Errc code) {
    switch (code) {
        case Errc::not_found: return Exit::not_found;
        case Errc::busy:
        case Errc::exists: return Exit::busy;
        case Errc::refused: return Exit::permission;
        case Errc::invalid: return Exit::usage;
        default: return Exit::failed;
    }
}

Failure failure_of(const Json& reply, int status) {
    const auto error = reply.is_object() ? reply.find("error") : reply.end();
    if (error == reply.end() || !error->is_object())
        return {.exit = Exit::failed, .cause = fmt::format("the daemon answered {}", status), .hint = {}};
    const std::string code = error->value("code", "");
    return {.exit = exit_of(code), .cause = error->value("message", "unknown error"), .hint = {}, .code = code};
}

void explain(Failure& failure, std::string_view verb, const std::string& object) {
    if (failure.code.empty()) {
        failure.code = code_of(failure.exit);
        return;
    }
    const auto* const advice = std::ranges::find_if(advices, [&](const Advice& each) {
        return each.code == failure.code && (each.verb.empty() || each.verb == verb);
    });
    if (advice == advices.end()) return;
    if (!advice->cause.empty()) failure.cause = advice->cause;
    if (!failure.hint.empty()) return;
    failure.hint = advice->hint;
    if (const size_t place = failure.hint.find("{}"); place != std::string::npos)
        failure.hint.replace(place, 2, failure.object.empty() ? object : failure.object);
}

Json json_of(const Failure& failure, const std::string& object) {
    return {{"object", failure.object.empty() ? object : failure.object},
            {"code", failure.code.empty() ? code_of(failure.exit) : failure.code},
            {"message", failure.cause},
            {"hint", failure.hint},
            {"exit", static_cast<int>(failure.exit)}};
}

}  // namespace tarn
