#include "daemon/control/control_api.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "daemon/configuration/version.hpp"
#include "utils/clock.hpp"
#include "utils/log.hpp"

namespace tarn {

namespace {

constexpr uint64_t fail_after_ms_max = uint64_t{24} * 3600 * 1000;

// Names come from elsewhere: what is not UTF-8 is replaced, never thrown about.
std::string dump(const Json& json) {
    return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

HttpReply reply(const Json& json, int status = 200) {
    return {status, dump(json)};
}

struct Refusal {
    const char* code;
    int status;
};
Refusal refusal_of(Errc code) {
    switch (code) {
        case Errc::io: return {"io", 500};
        case Errc::no_space: return {"no_space", 507};
        case Errc::not_found: return {"not_found", 404};
        case Errc::exists: return {"exists", 409};
        case Errc::busy: return {"busy", 409};
        case Errc::invalid: return {"invalid", 400};
        case Errc::unavailable: return {"unavailable", 503};
        case Errc::refused: return {"refused", 403};
        case Errc::protocol: return {"protocol", 500};
        case Errc::corrupt: return {"corrupt", 500};
        case Errc::closed: return {"closed", 503};
        case Errc::cancelled: return {"cancelled", 503};
        case Errc::unsupported: return {"unsupported", 501};
    }
    return {"io", 500};
}

HttpReply refuse_as(int status, const char* code, std::string_view message) {
    return reply({{"error", {{"code", code}, {"message", message}}}}, status);
}

HttpReply refuse_with(const Error& error) {
    const Refusal refusal = refusal_of(error.code);
    return refuse_as(refusal.status, refusal.code, log::explain(error));
}

// A JSON object whose members are all asked for: what nobody asked for is refused at the end.
class Body {
  public:
    explicit Body(std::string_view text) {
        std::vector<std::set<std::string>> keys;
        const auto look = [&](int, Json::parse_event_t event, Json& value) {
            if (event == Json::parse_event_t::object_start) keys.emplace_back();
            if (event == Json::parse_event_t::object_end) keys.pop_back();
            if (event == Json::parse_event_t::key && !keys.back().insert(value.get<std::string>()).second)
                problem_ = "a key stands there twice";
            return true;
        };
        json_ = Json::parse(text.begin(), text.end(), look, false);
        if (!json_.is_object()) problem_ = "the body is not a JSON object";
    }

    template <class T>
    std::optional<T> optional(const char* key) {
        const Json value = take(key);
        if (value.is_null()) return std::nullopt;
        return convert<T>(key, value);
    }
    template <class T>
    T required(const char* key) {
        const Json value = take(key);
        if (value.is_null()) {
            note(std::string(key) + " is missing");
            return T{};
        }
        return convert<T>(key, value).value_or(T{});
    }
    // What is wrong with it; empty when nothing is.
    std::string problem() {
        if (problem_.empty() && !json_.empty()) note("unknown key " + log::printable(json_.begin().key()));
        return problem_;
    }

  private:
    void note(std::string problem) {
        if (problem_.empty()) problem_ = std::move(problem);
    }
    Json take(const char* key) {
        if (!json_.is_object()) return nullptr;
        const auto found = json_.find(key);
        if (found == json_.end()) return nullptr;
        Json value = *found;
        json_.erase(key);
        if (value.is_null()) note(std::string(key) + " is null");
        return value;
    }
    template <class T>
    std::optional<T> convert(const char* key, const Json& value) {
        constexpr bool is_bool = std::is_same_v<T, bool>;
        constexpr bool is_number = std::is_same_v<T, uint64_t>;
        if (is_bool ? value.is_boolean() : is_number ? value.is_number_unsigned() : value.is_string())
            return value.get<T>();
        note(std::string(key) + (is_bool     ? " is not true or false"
                                 : is_number ? " is not a whole number from 0 to 2^64-1"
                                             : " is not a string"));
        return std::nullopt;
    }

    Json json_;
    std::string problem_;
};

Json json_of(const Attachment& attachment) {
    return {{"volume", attachment.volume},           {"device", "/dev/" + attachment.device},
            {"size_bytes", attachment.size_bytes},   {"read_only", attachment.read_only},
            {"connections", attachment.connections}, {"kept", attachment.is_kept}};
}

Json json_of(const VolumeEntry& volume) {
    const Attributes& attributes = volume.attributes;
    Json json{{"name", volume.name},
              {"id", volume.id},
              {"size_bytes", volume.attributes_seen ? Json(attributes.size_bytes) : Json()},
              {"shared", volume.shared},
              {"holder", volume.holder}};
    if (volume.attributes_seen)
        json.update({{"mode", attributes.mode},
                     {"user", attributes.user},
                     {"group", attributes.group},
                     {"fail_after_ms", attributes.fail_after_ms},
                     {"modified_ns", attributes.modified_ns}});
    json["silent_host"] = volume.silent_host;
    return json;
}

std::string list_some(const std::vector<std::string>& names) {
    constexpr size_t named_max = 10;
    std::string text;
    for (size_t i = 0; i < std::min(names.size(), named_max); ++i) text += (i == 0 ? "" : ", ") + names[i];
    if (names.size() > named_max) text += " and " + std::to_string(names.size() - named_max) + " more";
    return text;
}

std::string describe_users(const std::vector<std::string>& users) {
    if (users.empty())
        return "it is in use: files are open, or something is mounted below it; --force unmounts it all the same";
    return "it is in use by " + list_some(users) + "; --force unmounts it all the same";
}

Json json_of(const Scrubber::Progress& status, const Control& control) {
    Json bad_pages = Json::array();
    for (const PageId page : status.bad_pages)
        bad_pages.push_back(
            {{"volume", control.name_of_volume(page.volume())}, {"volume_id", page.volume()}, {"page", page.number()}});
    return {{"volume_id", status.volume ? Json(*status.volume) : Json()},
            {"running", status.running},
            {"cancelled", status.cancelled},
            {"pages_total", status.pages_total},
            {"pages_checked", status.pages_checked},
            {"bad_page_count", status.bad_page_count},
            {"bad_pages", bad_pages},
            {"passes", status.passes}};
}

Json json_of(const NodeStatus& status) {
    Json peers = Json::array();
    for (const PeerStatus& peer : status.peers)
        peers.push_back({{"name", peer.name},
                         {"address", peer.address},
                         {"self", peer.self},
                         {"registrar", peers.empty()},
                         {"connected", peer.self || peer.connected},
                         {"answers", peer.self || peer.answers},
                         {"reason", peer.trouble},
                         {"forgotten", peer.forgotten},
                         {"link", peer.link}});
    Json json{{"version", version}};
    json.update(status.facts);
    // Peers are a static list: nobody takes over for a host that is gone.
    json.update({{"failover", false}, {"peers", peers}});
    return json;
}

// Who is in another one may not see what is mounted here. 0: not known.
uint64_t mount_namespace() {
    struct stat status{};
    return ::stat("/proc/self/ns/mnt", &status) == 0 ? status.st_ino : 0;
}

}  // namespace

HttpReply::HttpReply(const std::unexpected<Error>& failed) : HttpReply(refuse_with(failed.error())) {}

HttpReply ControlApi::refuse(int status, std::string_view reason) {
    return refuse_as(status, status == 413 || status == 431 ? "too_large" : "invalid", reason);
}

Task<HttpReply> ControlApi::handle(HttpRequest request, Caller caller) {
    struct Route {
        std::string_view method, resource;
        size_t size;
        std::string_view action;  // behind the name
        Answer ControlApi::* answer;
    };
    constexpr std::array<Route, 18> routes = {{{"GET", "status", 2, "", &ControlApi::status},
                                               {"GET", "volumes", 2, "", &ControlApi::list},
                                               {"POST", "volumes", 2, "", &ControlApi::create},
                                               {"GET", "volumes", 3, "", &ControlApi::show},
                                               {"PATCH", "volumes", 3, "", &ControlApi::resize},
                                               {"DELETE", "volumes", 3, "", &ControlApi::remove},
                                               {"POST", "volumes", 4, "flush", &ControlApi::flush},
                                               {"GET", "exports", 2, "", &ControlApi::exports},
                                               {"GET", "mounts", 2, "", &ControlApi::mounts},
                                               {"POST", "mounts", 2, "", &ControlApi::mount},
                                               {"DELETE", "mounts", 2, "", &ControlApi::unmount},
                                               {"GET", "attachments", 2, "", &ControlApi::attachments},
                                               {"POST", "attachments", 2, "", &ControlApi::attach},
                                               {"DELETE", "attachments", 2, "", &ControlApi::detach},
                                               {"GET", "verify", 2, "", &ControlApi::verify},
                                               {"POST", "verify", 2, "", &ControlApi::verify},
                                               {"DELETE", "verify", 2, "", &ControlApi::verify},
                                               {"POST", "hosts", 4, "forget", &ControlApi::forget_host}}};
    const std::vector<std::string>& path = request.path;
    if (path.size() > 2 && path[0] == "v1" && path[1] == "volumes" && !valid_volume_name(path[2]))
        co_return refuse_as(400, "invalid", "not a valid volume name");
    bool exists = false;
    for (const Route& route : routes) {
        if (path.size() != route.size || path[0] != "v1" || path[1] != route.resource) continue;
        if (route.size == 4 && path[3] != route.action) continue;
        if (route.method == request.method) co_return co_await (this->*route.answer)(request, caller);
        exists = true;
    }
    if (exists) co_return refuse_as(405, "unsupported", "no such method for this resource");
    co_return refuse_as(404, "not_found", "no such resource");
}

// Without a volume: all that this host stores.
Task<HttpReply> ControlApi::verify(const HttpRequest& request, const Caller&) {
    if (request.method == "POST") {
        Body body(request.body);
        const auto name = body.optional<std::string>("volume");
        const auto rate_bytes = body.optional<uint64_t>("rate_bytes").value_or(0);
        if (const std::string problem = body.problem(); !problem.empty()) co_return refuse_as(400, "invalid", problem);
        std::optional<VolumeId> volume;
        if (name) {
            if (!valid_volume_name(*name)) co_return refuse_as(400, "invalid", "not a valid volume name");
            CO_TRY(const VolumeEntry entry, co_await volumes_.find(*name));
            volume = entry.id;
        }
        CO_TRY_VOID(control_.start_verify(volume, rate_bytes));
    } else if (request.method == "DELETE") {
        control_.stop_verify();
    }
    co_return reply(json_of(control_.verify_status(), control_), request.method == "POST" ? 202 : 200);
}

Task<HttpReply> ControlApi::status(const HttpRequest&, const Caller&) {
    CO_TRY(const NodeStatus status, co_await control_.status());
    Json json = json_of(status);
    // The other hosts are asked for theirs; the rest of the status is worth having without it.
    const Result<Space> space = co_await volumes_.space();
    json["space"] = nullptr;
    if (space)
        json["space"] = {{"total_bytes", space->total_bytes},
                         {"free_bytes", space->free_bytes},
                         {"silent_hosts", space->silent_hosts},
                         {"untold_hosts", space->untold_hosts}};
    json["deleting"] = Json::array();
    for (const Deletion& deletion : co_await volumes_.deletions())
        json["deleting"].push_back(
            {{"name", deletion.name}, {"in_use_on", deletion.in_use_on}, {"silent_hosts", deletion.silent_hosts}});
    co_return reply(json);
}

Task<HttpReply> ControlApi::list(const HttpRequest&, const Caller&) {
    CO_TRY(const std::vector<VolumeEntry> volumes, co_await volumes_.list());
    const Usage usage = co_await volumes_.usage();
    Json json = Json::array();
    for (const VolumeEntry& volume : volumes) {
        json.push_back(json_of(volume));
        json.back()["used_bytes"] = usage.of(volume.id);
    }
    co_return reply({{"volumes", json}, {"used_without", usage.silent_hosts}});
}

Task<HttpReply> ControlApi::create(const HttpRequest& request, const Caller&) {
    Body body(request.body);
    const auto name = body.required<std::string>("name");
    const auto size_bytes = body.required<uint64_t>("size_bytes");
    const bool shared = body.optional<bool>("shared").value_or(shared_by_default_);
    const auto mode = body.optional<uint64_t>("mode").value_or(0600);
    const auto fail_after_ms = body.optional<uint64_t>("fail_after_ms").value_or(0);
    if (const std::string problem = body.problem(); !problem.empty()) co_return refuse_as(400, "invalid", problem);
    if (!valid_volume_name(name)) co_return refuse_as(400, "invalid", "not a valid volume name");
    if (size_bytes > volume_size_max) co_return refuse_as(400, "invalid", "a volume has at most 2 PiB");
    if (size_bytes == 0 && !shared) co_return refuse_as(400, "invalid", "size 0 is for shared volumes only");
    if (mode > 07777) co_return refuse_as(400, "invalid", "mode is more than permission bits");
    if (fail_after_ms > fail_after_ms_max) co_return refuse_as(400, "invalid", "fail_after_ms is more than a day");
    const int64_t now_ns = realtime_ns();
    const Attributes attributes{.size_bytes = size_bytes,
                                .modified_ns = now_ns,
                                .changed_ns = now_ns,
                                .mode = static_cast<uint32_t>(mode),
                                .fail_after_ms = static_cast<uint32_t>(fail_after_ms)};
    CO_TRY(const VolumeEntry volume, co_await volumes_.create(name, shared, attributes));
    log::info("volume {} was created, {} bytes", log::printable(name), size_bytes);
    co_return reply(json_of(volume), 201);
}

Task<HttpReply> ControlApi::show(const HttpRequest& request, const Caller&) {
    const std::string& name = request.path[2];
    CO_TRY(const VolumeEntry volume, co_await volumes_.find(name));
    Json json = json_of(volume);
    const Usage usage = co_await volumes_.usage();
    json["used_bytes"] = usage.of(volume.id);
    json["used_without"] = usage.silent_hosts;
    Export exported = control_.export_of(name);
    json["uris"] = std::move(exported.uris);
    json["nbd_over_tcp"] = exported.over_tcp;
    json["nbd_read_only"] = exported.read_only;
    json["nbd_access"] = exported.clients ? Json(*exported.clients) : Json();
    // What this host cannot promise of any volume at present, and why.
    const Result<NodeStatus> status = co_await control_.status();
    const std::string failure = status ? status->facts.value("store_failure", "") : "";
    json["degraded"] =
        failure.empty() ? "" : "the store of host " + status->facts.value("host", "") + " failed: " + failure;
    co_return reply(json);
}

Task<HttpReply> ControlApi::resize(const HttpRequest& request, const Caller&) {
    const std::string& name = request.path[2];
    Body body(request.body);
    const auto size_bytes = body.required<uint64_t>("size_bytes");
    const bool shrink = body.optional<bool>("shrink").value_or(false);
    if (const std::string problem = body.problem(); !problem.empty()) co_return refuse_as(400, "invalid", problem);
    if (size_bytes > volume_size_max) co_return refuse_as(400, "invalid", "a volume has at most 2 PiB");
    CO_TRY(VolumeEntry entry, co_await volumes_.glance(name));
    if (!entry.silent_host.empty())
        co_return refuse_as(503, "unavailable", "host " + entry.silent_host + " does not answer");
    if (size_bytes == 0 && !entry.shared) co_return refuse_as(400, "invalid", "size 0 is for shared volumes only");
    const Result<std::shared_ptr<Volume>> opened = co_await volumes_.open(name, Access::write);
    if (!opened && opened.error().code == Errc::busy)
        co_return refuse_as(409, "busy", std::string(opened.error().where) + "; resize it there");
    CO_TRY(const std::shared_ptr<Volume> volume, opened);
    // Asked of the volume itself: the list may be older than another administrator's resize.
    CO_TRY(const Attributes now, co_await volumes_.unless_silent(entry.id, volume->attributes()));
    const bool shrinks = size_bytes < now.size_bytes;
    std::vector<std::string> users;
    if (shrinks) users = co_await volumes_.users_of(entry.id);
    if (!shrink && !users.empty())
        co_return refuse_as(409, "busy",
                            "NBD clients have it open: " + list_some(users) +
                                "; --force shrinks it all the same, and what lies past the new end is lost");
    if (shrinks && !shrink)
        co_return refuse_as(409, "would_shrink", "the volume is larger; shrinking it loses what lies past the new end");
    Result<Attributes> changed =
        co_await volumes_.unless_silent(entry.id, volume->change_attributes({.size_bytes = size_bytes}));
    // A cut is made at once. Then what lay past it is made zeros; if that had to be given up, who needs it goes on.
    if (!changed && changed.error().code == Errc::unavailable && shrinks) {
        const Result<Attributes> seen = co_await volumes_.unless_silent(entry.id, volume->attributes());
        if (!seen)
            co_return refuse_as(503, "unavailable",
                                log::explain(seen.error()) + "; whether the volume has its new size is not known");
        if (seen->size_bytes == size_bytes) changed = *seen;
    }
    CO_TRY(entry.attributes, changed);
    Json json = json_of(entry);
    json["was_bytes"] = now.size_bytes;
    json["open_by"] = users;
    if (size_bytes != now.size_bytes)
        log::info("volume {} has {} bytes now, and had {}", log::printable(name), size_bytes, now.size_bytes);
    json["not_told"] = co_await control_.tell_size(entry.id);
    co_return reply(json);
}

Task<HttpReply> ControlApi::remove(const HttpRequest& request, const Caller&) {
    const std::string& name = request.path[2];
    Body body(request.body.empty() ? "{}" : request.body);
    const bool force = body.optional<bool>("force").value_or(false);
    if (const std::string problem = body.problem(); !problem.empty()) co_return refuse_as(400, "invalid", problem);
    CO_TRY(const Removal removed, co_await volumes_.remove(name, force));
    if (!removed.users.empty())
        co_return refuse_as(409, "busy",
                            "NBD clients have it open: " + list_some(removed.users) +
                                "; --force disconnects them and deletes it all the same");
    log::info("volume {} was deleted", log::printable(name));
    co_return reply({{"name", name}});
}

Task<HttpReply> ControlApi::flush(const HttpRequest& request, const Caller&) {
    const std::string& name = request.path[2];
    CO_TRY(const std::shared_ptr<Volume> volume, co_await volumes_.open(name, Access::read));
    CO_TRY_VOID(co_await volume->flush());
    co_return reply({{"name", name}});
}

Task<HttpReply> ControlApi::forget_host(const HttpRequest& request, const Caller&) {
    const std::string& name = request.path[2];
    Body body(request.body);
    const bool is_dead = body.required<bool>("it_is_dead");
    if (const std::string problem = body.problem(); !problem.empty()) co_return refuse_as(400, "invalid", problem);
    if (!is_dead)
        co_return refuse_as(400, "invalid", "a host that may be alive must not be forgotten: it still serves reads");
    CO_TRY(const Forgotten forgotten, co_await control_.forget_host(name));
    co_return reply({{"name", name}, {"told", forgotten.told}, {"not_told", forgotten.not_told}});
}

Task<HttpReply> ControlApi::exports(const HttpRequest&, const Caller&) {
    CO_TRY(const std::vector<VolumeEntry> volumes, co_await volumes_.names());
    Json json = Json::array();
    for (const VolumeEntry& volume : volumes)
        json.push_back({{"volume", volume.name}, {"uris", control_.export_of(volume.name).uris}});
    co_return reply({{"nbd", control_.serves_nbd()}, {"exports", json}});
}

Task<HttpReply> ControlApi::mounts(const HttpRequest&, const Caller&) {
    Json json = Json::array();
    for (const Mount& mount : control_.mounts()) json.push_back({{"path", mount.path}, {"read_only", mount.read_only}});
    co_return reply({{"mounts", json}, {"namespace", mount_namespace()}});
}

Task<HttpReply> ControlApi::mount(const HttpRequest& request, const Caller& caller) {
    Body body(request.body);
    Mount mount;
    mount.path = body.required<std::string>("path");
    mount.read_only = body.optional<bool>("read_only").value_or(false);
    if (const std::string problem = body.problem(); !problem.empty()) co_return refuse_as(400, "invalid", problem);
    if (!mount.path.starts_with('/') || mount.path.contains('\0'))
        co_return refuse_as(400, "invalid", "path is not an absolute path");
    CO_TRY_VOID(co_await control_.mount(mount, caller));
    co_return reply({{"path", mount.path}, {"read_only", mount.read_only}, {"namespace", mount_namespace()}}, 201);
}

Task<HttpReply> ControlApi::unmount(const HttpRequest& request, const Caller&) {
    Body body(request.body);
    const auto path = body.required<std::string>("path");
    const bool force = body.optional<bool>("force").value_or(false);
    if (const std::string problem = body.problem(); !problem.empty()) co_return refuse_as(400, "invalid", problem);
    CO_TRY(const Unmounting unmounted, co_await control_.unmount(path, force));
    if (unmounted.busy) co_return refuse_as(409, "busy", describe_users(unmounted.users));
    co_return reply({{"path", path}});
}

Task<HttpReply> ControlApi::attachments(const HttpRequest&, const Caller&) {
    Json json = Json::array();
    for (const Attachment& attachment : control_.attachments()) json.push_back(json_of(attachment));
    co_return reply({{"attachments", json}});
}

Task<HttpReply> ControlApi::attach(const HttpRequest& request, const Caller& caller) {
    Body body(request.body);
    AttachOptions options;
    options.volume = body.required<std::string>("volume");
    options.read_only = body.optional<bool>("read_only").value_or(false);
    options.take_over = body.optional<bool>("take_over").value_or(false);
    const auto block_size_bytes = body.optional<uint64_t>("block_size_bytes").value_or(options.block_size_bytes);
    const auto connections = body.optional<uint64_t>("connections").value_or(0);
    if (const std::string problem = body.problem(); !problem.empty()) co_return refuse_as(400, "invalid", problem);
    if (!valid_volume_name(options.volume)) co_return refuse_as(400, "invalid", "not a valid volume name");
    if (block_size_bytes != 512 && block_size_bytes != 4096)
        co_return refuse_as(400, "invalid", "block_size_bytes is neither 512 nor 4096");
    if (connections > AttachOptions::connections_max)
        co_return refuse_as(400, "invalid", fmt::format("connections is above {}", AttachOptions::connections_max));
    options.block_size_bytes = static_cast<uint32_t>(block_size_bytes);
    options.connections = static_cast<unsigned>(connections);
    CO_TRY(const Attachment attachment, co_await control_.attach(options, caller));
    co_return reply(json_of(attachment), 201);
}

Task<HttpReply> ControlApi::detach(const HttpRequest& request, const Caller& caller) {
    Body body(request.body);
    const auto volume = body.required<std::string>("volume");
    const bool force = body.optional<bool>("force").value_or(false);
    if (const std::string problem = body.problem(); !problem.empty()) co_return refuse_as(400, "invalid", problem);
    CO_TRY_VOID(co_await control_.detach(volume, force, caller));
    co_return reply({{"name", volume}});
}

}  // namespace tarn
