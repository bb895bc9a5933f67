#include "daemon/cli/print.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <utility>

#include "daemon/configuration/text.hpp"
#include "tiers/page.hpp"
#include "utils/printable.hpp"

namespace tarn {

namespace {

constexpr size_t name_width_max = 32;

std::string text_of(const Json& json) {
    return json.is_string() ? printable(json.get_ref<const std::string&>()) : "";
}
std::string text_of(const Json& json, const char* key) {
    const auto found = json.find(key);
    return found != json.end() ? text_of(*found) : "";
}

uint64_t number_of(const Json& json, const char* key) {
    return json.value(key, uint64_t{0});
}

std::string size_of(const Json& json, const char* key) {
    return format_size_roughly(number_of(json, key));
}

const Json& array_of(const Json& json, const char* key) {
    static const Json none = Json::array();
    const auto found = json.find(key);
    return found != json.end() && found->is_array() ? *found : none;
}

// What the hosts that answered have set aside for it.
std::string used_of(const Json& volume) {
    const auto used = volume.find("used_bytes");
    return used != volume.end() && used->is_number() ? size_of(volume, "used_bytes") : "?";
}

std::string access_of(const Json& volume) {
    if (volume.value("shared", false)) return "shared";
    const std::string holder = text_of(volume, "holder");
    return holder.empty() ? "exclusive" : fmt::format("exclusive, held by {}", holder);
}

std::string duration_of(uint64_t seconds) {
    if (seconds < 120) return fmt::format("{} s", seconds);
    if (seconds < 7200) return fmt::format("{} min", seconds / 60);
    if (seconds < 172800) return fmt::format("{} h", seconds / 3600);
    return fmt::format("{} days", seconds / 86400);
}

std::string time_of(uint64_t since_epoch_ns) {
    const auto seconds = static_cast<time_t>(since_epoch_ns / 1'000'000'000);
    return fmt::format("{:%Y-%m-%d %H:%M:%S} UTC", fmt::gmtime(seconds));
}

// The hosts of a list behind what is said of them; nothing, if there are none.
void print_hosts(std::ostream& out, const char* said, const Json& hosts) {
    for (const Json& host : hosts) out << std::exchange(said, ", ") << text_of(host);
}

void print_peers(std::ostream& out, const Json& status) {
    const Json& peers = array_of(status, "peers");
    if (peers.size() < 2) {
        out << "cluster  this host alone\n";
        return;
    }
    out << fmt::format("cluster  {} hosts, a static list: no failover; a host that is gone is waited for\n",
                       peers.size());
    if (!status.value("serves", true))
        out << "         this host stores and serves nothing until it has met all others since it started\n";
    for (const Json& peer : peers) {
        const std::string reason = text_of(peer, "reason");
        out << fmt::format("  {:<16} {:<24} {}{}{}\n", text_of(peer, "name"), text_of(peer, "address"),
                           peer.value("self", false) ? "this host"
                           : peer.value("connected", false)
                               ? (peer.value("answers", true) ? "connected" : "connected, does not answer")
                           : peer.value("forgotten", false) ? "declared dead"
                                                            : "unreachable",
                           peer.value("registrar", false) ? ", keeps the names of the volumes" : "",
                           reason.empty() ? "" : ": " + reason);
    }
}

void print_next(std::ostream& out, const Json& made) {
    out << "next:\n";
    for (const Json& line : array_of(made, "next")) out << "  " << text_of(line) << "\n";
}

}  // namespace

void print_init(std::ostream& out, const Json& made) {
    out << fmt::format("wrote {}\n{}  {}\n", text_of(made, "configuration"),
                       made.value("store_was_there", false) ? "kept" : "made", text_of(made, "store"));
    if (!text_of(made, "key_file").empty()) out << fmt::format("key   {}\n", text_of(made, "key_file"));
    print_next(out, made);
}

void print_certificates(std::ostream& out, const Json& made) {
    out << fmt::format("made  {}\n", text_of(made, "directory"));
    print_next(out, made);
}

void print_made(std::ostream& out, const char* what, const Json& volumes, const std::string& note) {
    for (const Json& volume : array_of(volumes, "volumes"))
        out << fmt::format("{} {}, {}, {}{}\n", what, text_of(volume, "name"), size_of(volume, "size_bytes"),
                           access_of(volume), note);
}

void print_resized(std::ostream& out, const Json& volumes, const std::string& note) {
    const auto is_as_before = [](const Json& volume) {
        return number_of(volume, "was_bytes") == number_of(volume, "size_bytes");
    };
    print_made(out, std::ranges::any_of(array_of(volumes, "volumes"), is_as_before) ? "unchanged" : "resized", volumes,
               note);
    for (const Json& volume : array_of(volumes, "volumes")) {
        for (const Json& client : array_of(volume, "open_by"))
            out << fmt::format("{} is still open in {}\n", text_of(volume, "name"), text_of(client));
        if (!array_of(volume, "open_by").empty())
            out << "Devices of tarn attach have the new size; other NBD clients learn it when they connect anew.\n";
        for (const Json& host : array_of(volume, "not_told"))
            out << fmt::format(
                "{}: a device of {} there gets its new size later: that host, or one that its requests wait for, does "
                "not answer\n",
                text_of(host), text_of(volume, "name"));
    }
}

void print_done(std::ostream& out, const char* what, const Json& all, const char* key) {
    for (const Json& named : array_of(all, key)) {
        const std::string name = text_of(named, "name");
        out << fmt::format("{} {}\n", what, name.empty() ? text_of(named, "path") : name);
    }
}

void print_forgotten(std::ostream& out, const Json& forgotten) {
    out << fmt::format("forgot {}\n", text_of(forgotten, "name"));
    for (const Json& host : array_of(forgotten, "not_told"))
        out << fmt::format("{} is away, and is told when it is back\n", text_of(host));
}

void print_names(std::ostream& out, const Json& all, const char* key, const char* name_key, bool terminal) {
    for (const Json& named : array_of(all, key)) {
        const std::string name = named.value(name_key, "");
        out << (terminal ? printable(name) : name) << "\n";
    }
}

// A name that is too long for its column has a line of its own.
void print_list(std::ostream& out, const Json& list) {
    const Json& volumes = array_of(list, "volumes");
    size_t width = 4;
    for (const Json& volume : volumes)
        if (const size_t own = width_of(text_of(volume, "name")); own <= name_width_max) width = std::max(width, own);
    const auto blanks = [](size_t count) { return std::string(count, ' '); };
    out << fmt::format("NAME{}  {:>10}  {:>10}  ACCESS\n", blanks(width - 4), "SIZE", "USED");
    for (const Json& volume : volumes) {
        const std::string name = text_of(volume, "name");
        const size_t own = width_of(name);
        out << name << (own <= width ? blanks(width - own) : "\n" + blanks(width));
        const bool is_sized = volume.contains("size_bytes") && !volume["size_bytes"].is_null();
        const std::string silent = text_of(volume, "silent_host");
        const char* const what = is_sized ? "as last seen" : "size unknown";
        out << fmt::format("  {:>10}  {:>10}  {}{}\n", is_sized ? size_of(volume, "size_bytes") : "?", used_of(volume),
                           access_of(volume),
                           silent.empty() ? "" : fmt::format("  ({}: host {} does not answer)", what, silent));
    }
    for (const Json& host : array_of(list, "used_without"))
        out << fmt::format("USED is without what {} stores, which does not answer\n", text_of(host));
}

void print_volumes(std::ostream& out, const Json& volumes) {
    const char* between = "";
    for (const Json& volume : array_of(volumes, "volumes")) {
        out << std::exchange(between, "\n");
        out << fmt::format("name    {}\nsize    {} ({} bytes)\nused    {}", text_of(volume, "name"),
                           size_of(volume, "size_bytes"), number_of(volume, "size_bytes"), used_of(volume));
        print_hosts(out, ", without what is stored by ", array_of(volume, "used_without"));
        out << fmt::format("\naccess  {}\nmode    {:04o}\n", access_of(volume), number_of(volume, "mode"));
        if (const std::string degraded = text_of(volume, "degraded"); !degraded.empty())
            out << fmt::format("state   DEGRADED: {}\n", degraded);
        if (const uint64_t fail_after_ms = number_of(volume, "fail_after_ms"); fail_after_ms != 0)
            out << fmt::format("fails   after {} ms without an answer of a host\n", fail_after_ms);
        if (volume.value("nbd_read_only", false)) out << "nbd     read-only\n";
        if (volume.value("nbd_over_tcp", false)) {
            std::string names;
            for (const Json& client : array_of(volume, "nbd_access"))
                names += (names.empty() ? "" : ", ") + text_of(client);
            const bool is_open = !volume.value("nbd_access", Json()).is_array();
            out << fmt::format("nbd     over TCP here for {}\n", is_open         ? "everybody who is let in"
                                                                 : names.empty() ? "nobody"
                                                                                 : names);
        }
        for (const Json& uri : array_of(volume, "uris")) out << fmt::format("uri     {}\n", text_of(uri));
    }
}

void print_exports(std::ostream& out, const Json& exports) {
    for (const Json& one : array_of(exports, "exports"))
        for (const Json& uri : array_of(one, "uris")) out << text_of(uri) << "\n";
}

void print_attached(std::ostream& out, const Json& attached) {
    for (const Json& each : array_of(attached, "attachments"))
        out << text_of(each, "device") << (text_of(each, "link").empty() ? "" : "  ") << text_of(each, "link") << "\n";
}

void print_attachments(std::ostream& out, const Json& attached) {
    out << fmt::format("{:<12}  {:>10}  ACCESS      VOLUME\n", "DEVICE", "SIZE");
    for (const Json& each : array_of(attached, "attachments"))
        out << fmt::format("{:<12}  {:>10}  {:<10}  {}{}\n", text_of(each, "device"), size_of(each, "size_bytes"),
                           !each.value("served", true)      ? "not served"
                           : each.value("read_only", false) ? "read-only"
                                                            : "read-write",
                           text_of(each, "volume"),
                           each.value("kept", true) ? "" : "  (tarn-keeper does not have it yet)");
}

void print_mounts(std::ostream& out, const char* what, const Json& mounts) {
    for (const Json& mount : array_of(mounts, "mounts"))
        out << fmt::format("{}{}{}{}\n", what, text_of(mount, "path"),
                           mount.value("read_only", false) ? " (read-only)" : "",
                           mount.value("seen_here", true) ? "" : " (in another mount namespace: not seen here)");
    if (mounts.value("io_uring_switched_on", false))
        out << "switched on /sys/module/fuse/parameters/enable_uring, for all FUSE mounts made from now on\n";
}

void print_findings(std::ostream& out, const Json& findings) {
    size_t could_be_better = 0;
    size_t missing = 0;
    for (const Json& each : array_of(findings, "findings")) {
        const std::string verdict = text_of(each, "verdict");
        out << fmt::format("{:<8} {}: {}\n", verdict, text_of(each, "about"), text_of(each, "seen"));
        if (verdict == "good") continue;
        out << fmt::format("         try: {}\n         for: {}\n", text_of(each, "mend"), text_of(each, "effect"));
        could_be_better += verdict == "better";
        missing += verdict == "missing";
    }
    out << fmt::format("{} missing, {} could be better\n", missing, could_be_better);
}

void print_verified(std::ostream& out, const Json& status) {
    const uint64_t bad = number_of(status, "bad_page_count");
    if (number_of(status, "pages_total") == 0) return void(out << "this host stores no pages of it\n");
    out << fmt::format("{} of {} pages checked, {} bad{}\n", number_of(status, "pages_checked"),
                       number_of(status, "pages_total"), bad, status.value("cancelled", false) ? "; stopped" : "");
    for (const Json& page : array_of(status, "bad_pages")) {
        const uint64_t begin = number_of(page, "page") * page_size;
        out << fmt::format("bad      {}: page {}, its bytes {} to {}\n", text_of(page, "volume"),
                           number_of(page, "page"), begin, begin + page_size - 1);
    }
    if (bad != 0)
        out << "they cannot be read until they are written whole, or the volume is restored; the log of tarnd says "
               "where they lie and what was found\n";
}

void print_loss(std::ostream& out, const Json& loss) {
    const std::string host = text_of(loss, "host");
    const std::string cause = fmt::format(
        "with {}, {}", host.empty() ? "the memory of another host, or a part of the journal" : "the memory of " + host,
        time_of(number_of(loss, "at_ns")));
    const std::string volume = text_of(loss, "volume");
    if (volume.empty()) {
        out << fmt::format("LOST     any volume: maybe unflushed writes of pages that no host held, {}\n", cause);
        return;
    }
    std::string what;
    if (const uint64_t pages = number_of(loss, "pages"); pages != 0)
        what =
            fmt::format("{} pages from {} to {}", pages, number_of(loss, "first_page"), number_of(loss, "last_page"));
    if (loss.value("attributes", false)) what += what.empty() ? "its attributes" : " and its attributes";
    out << fmt::format("LOST     {}: maybe {} of {}, {}\n", volume, host.empty() ? "writes" : "unflushed writes", what,
                       cause);
}

void print_status(std::ostream& out, const Json& status) {
    out << fmt::format("host     {}, tarnd {}, up {}\n", text_of(status, "host"), text_of(status, "version"),
                       duration_of(number_of(status, "uptime_s")));
    out << fmt::format("memory   {}, {} cached, {} not yet durable\n", size_of(status, "memory_bytes"),
                       size_of(status, "cached_bytes"), size_of(status, "dirty_bytes"));
    if (const auto store = status.find("store"); store != status.end() && store->is_object())
        out << fmt::format("store    {}, {} free; {} allocated, {} stored\n", size_of(*store, "total_bytes"),
                           size_of(*store, "free_bytes"), size_of(status, "store_allocated_bytes"),
                           size_of(status, "store_stored_bytes"));
    if (const uint64_t bad = number_of(status, "store_bad_pages"); bad != 0)
        out << fmt::format("store    {} reads met a wrong checksum; the log names the pages\n", bad);
    if (const std::string failure = text_of(status, "store_failure"); !failure.empty())
        out << fmt::format(
            "store    FAILED: {}; flushes fail, and writes that need new memory. Mend the device or give it space, "
            "then restart tarnd, which takes the memory over\n",
            failure);
    for (const Json& loss : array_of(status, "losses")) print_loss(out, loss);
    if (const auto space = status.find("space"); space != status.end() && space->is_object()) {
        out << fmt::format("space    {} in all, {} free", size_of(*space, "total_bytes"),
                           size_of(*space, "free_bytes"));
        print_hosts(out, "; as last told by ", array_of(*space, "silent_hosts"));
        const Json& untold = array_of(*space, "untold_hosts");
        print_hosts(out, "; without ", untold);
        out << (untold.empty() ? "\n" : ", whose space is not known yet\n");
    }
    for (const Json& deletion : array_of(status, "deleting")) {
        out << fmt::format("deleting {}", text_of(deletion, "name"));
        print_hosts(out, "; files of it are open on ", array_of(deletion, "in_use_on"));
        print_hosts(out, "; waits for ", array_of(deletion, "silent_hosts"));
        out << "\n";
    }
    print_peers(out, status);
}

void print_shards(std::ostream& out, const Json& status) {
    constexpr const char* line = "  {:<8} {:<10} {:>11} {:>6} {:>5} {:>14} {:>10} {:>11} {:>11}\n";
    const auto seconds_of = [](const Json& shard, const char* key) {
        return fmt::format("{:.1f} s", static_cast<double>(number_of(shard, key)) / 1e9);
    };
    out << "shards\n"
        << fmt::format(line, "CPUs", "thread is", "connections", "mounts", "links", "requests", "hops", "ran",
                       "waited");
    for (const Json& shard : array_of(status, "shards")) {
        const std::string cpus = text_of(shard, "cpus");
        out << fmt::format(line, cpus.empty() ? "any" : cpus, text_of(shard, "mode"),
                           number_of(shard, "nbd_connections"), number_of(shard, "mounts"), number_of(shard, "links"),
                           number_of(shard, "requests"), number_of(shard, "hops"), seconds_of(shard, "run_ns"),
                           seconds_of(shard, "run_delay_ns"));
    }
}

void print_links(std::ostream& out, const Json& status) {
    constexpr const char* line = "  {:<16} {:<10} {:>10} {:>12} {:>12} {:>10} {:>10} {:>7}\n";
    out << "links\n"
        << fmt::format(line, "host", "transport", "round trip", "messages to", "from", "bytes to", "from", "retries");
    for (const Json& peer : array_of(status, "peers")) {
        const auto found = peer.find("link");
        if (found == peer.end() || !found->is_object()) continue;
        const Json& link = *found;
        const uint64_t round_trip_us = number_of(link, "round_trip_ns") / 1000;
        const uint64_t links = number_of(link, "links");
        out << fmt::format(line, text_of(peer, "name"), text_of(link, "transport"),
                           round_trip_us == 0 ? "-" : fmt::format("{} us", round_trip_us),
                           number_of(link, "messages_sent"), number_of(link, "messages_received"),
                           size_of(link, "bytes_sent"), size_of(link, "bytes_received"), links == 0 ? 0 : links - 1);
    }
}

}  // namespace tarn
