#include "daemon/catalog/registrar.hpp"

#include <nlohmann/json.hpp>

#include "frontends/volumes/cached_volume.hpp"
#include "utils/log.hpp"
#include "utils/with_timeout.hpp"

namespace tarn {

using nlohmann::json;

std::string create_request(const std::string& name, bool shared, const Attributes& attributes) {
    return json{{"change", "create"},        {"name", name},
                {"shared", shared},          {"size", attributes.size_bytes},
                {"mode", attributes.mode},   {"user", attributes.user},
                {"group", attributes.group}, {"fail_after_ms", attributes.fail_after_ms}}
        .dump();
}
std::string remove_request(const std::string& name, bool force) {
    return json{{"change", "remove"}, {"name", name}, {"force", force}}.dump();
}
std::string hold_request(const std::string& name, HoldNumber number, HoldKind kind) {
    return json{{"change", "hold"},
                {"name", name},
                {"epoch", number.epoch},
                {"count", number.count},
                {"kept", kind != HoldKind::of_process},
                {"resumed", kind == HoldKind::resumed}}
        .dump();
}
std::string release_request(VolumeId id, HoldNumber number) {
    return json{{"change", "release"}, {"id", id}, {"epoch", number.epoch}, {"count", number.count}}.dump();
}

std::string print_record(const CatalogRecord& record) {
    return json{{"name", record.name},
                {"id", record.id},
                {"shared", record.shared},
                {"holder", record.holder},
                {"holder_epoch", record.holder_epoch},
                {"kept", record.kept}}
        .dump();
}

namespace {

constexpr std::chrono::milliseconds look_for_hosts_every{100};  // whether those that were silent answer

// A member of the type asked for, or nothing.
template <class T>
std::optional<T> get(const json& object, const char* key) {
    const auto found = object.find(key);
    if (found == object.end()) return std::nullopt;
    if constexpr (std::is_same_v<T, std::string>) {
        if (found->is_string()) return found->get<std::string>();
    } else if constexpr (std::is_same_v<T, bool>) {
        if (found->is_boolean()) return found->get<bool>();
    } else {
        if (found->is_number_unsigned() && found->get<uint64_t>() <= std::numeric_limits<T>::max())
            return static_cast<T>(found->get<uint64_t>());
    }
    return std::nullopt;
}

Result<std::string> printed(const Result<CatalogRecord>& record) {
    if (!record) return fail(record.error());
    return print_record(*record);
}

}  // namespace

Result<CatalogRecord> parse_record(const std::string& answer) {
    const json object = json::parse(answer, nullptr, false);
    if (!object.is_object()) return fail(Errc::protocol, 0, "registrar.answer");
    const auto name = get<std::string>(object, "name");
    const auto id = get<uint32_t>(object, "id");
    const auto shared = get<bool>(object, "shared");
    const auto holder = get<uint8_t>(object, "holder");
    const auto holder_epoch = get<uint32_t>(object, "holder_epoch");
    if (!name || !id || !shared || !holder || !holder_epoch) return fail(Errc::protocol, 0, "registrar.answer");
    return CatalogRecord{.name = *name,
                         .id = *id,
                         .shared = *shared,
                         .holder = *holder,
                         .holder_epoch = *holder_epoch,
                         .kept = get<bool>(object, "kept").value_or(false)};
}

std::string print_users(const std::vector<std::string>& users) {
    return json{{"users", users}}.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::vector<std::string> parse_users(const std::string& answer) {
    const json object = json::parse(answer, nullptr, false);
    std::vector<std::string> users;
    if (!object.is_object() || !object.contains("users") || !object["users"].is_array()) return users;
    for (const json& each : object["users"])
        if (each.is_string()) users.push_back(each.get<std::string>());
    return users;
}

Task<Result<std::string>> Registrar::change(HostId from, std::string request) {
    co_await turn_.acquire();
    Result<std::string> answer = co_await dispatch(from, request);
    turn_.release();
    co_return answer;
}

Task<Result<std::string>> Registrar::dispatch(HostId from, const std::string& request) {
    const json object = json::parse(request, nullptr, false);
    if (!object.is_object()) co_return fail(Errc::protocol, 0, "registrar.request");
    const auto change = get<std::string>(object, "change");
    const auto name = get<std::string>(object, "name");
    if (change == "create") {
        const auto size = get<uint64_t>(object, "size");
        if (!name || !size) co_return fail(Errc::protocol, 0, "registrar.create");
        const Attributes attributes{.size_bytes = *size,
                                    .mode = get<uint32_t>(object, "mode").value_or(0600) & 07777,
                                    .user = get<uint32_t>(object, "user").value_or(0),
                                    .group = get<uint32_t>(object, "group").value_or(0),
                                    .fail_after_ms = get<uint32_t>(object, "fail_after_ms").value_or(0)};
        co_return printed(co_await create(*name, get<bool>(object, "shared").value_or(false), attributes));
    }
    if (change == "remove" && name) co_return co_await remove(*name, get<bool>(object, "force").value_or(false));
    const auto epoch = get<uint32_t>(object, "epoch");
    const auto count = get<uint32_t>(object, "count");
    if (!epoch || !count) co_return fail(Errc::protocol, 0, "registrar.hold");
    const HoldNumber number{.epoch = *epoch, .count = *count};
    if (change == "hold" && name) {
        const bool kept = get<bool>(object, "kept").value_or(false);
        const HoldKind kind = get<bool>(object, "resumed").value_or(false) ? HoldKind::resumed
                              : kept                                       ? HoldKind::of_device
                                                                           : HoldKind::of_process;
        co_return printed(co_await hold(*name, from, number, kind));
    }
    if (const auto id = get<uint32_t>(object, "id"); change == "release" && id)
        co_return printed(co_await release(*id, from, number));
    co_return fail(Errc::protocol, 0, "registrar.request: unknown");
}

bool Registrar::answers(HostId host) const {
    return host == cache_.self() || (cache_.fabric() && cache_.fabric()->answers(host));
}

Task<Result<CatalogRecord>> Registrar::create(std::string name, bool shared, Attributes attributes) {
    if (!valid_volume_name(name)) co_return fail(Errc::invalid, 0, "not a valid volume name");
    if (attributes.size_bytes > volume_size_max) co_return fail(Errc::invalid, EFBIG, "a volume has at most 2 PiB");
    if (attributes.size_bytes == 0 && !shared) co_return fail(Errc::invalid, 0, "size 0 is for shared volumes only");
    CO_TRY(const std::vector<CatalogRecord> records, co_await table_.list());
    for (const CatalogRecord& record : records) {
        if (record.name == name) co_return fail(Errc::exists, EEXIST, "a volume of that name exists already");
        if (names_collide(record.name, name))
            co_return fail(Errc::exists, 0,
                           record.name.size() < name.size()
                               ? StaticText("a part of its name is a volume, not a directory")
                               : StaticText("a directory of others has that name"));
    }
    CO_TRY(CatalogHeader header, co_await table_.header());
    const VolumeId first_free = header.next_id;
    while (header.next_id <= volume_id_max && !answers(cache_.home_of(attribute_page_of(header.next_id))))
        ++header.next_id;
    if (header.next_id > volume_id_max) co_return fail(Errc::no_space, 0, "the cluster has no volume ids left");
    // A host ends a link that names a volume past the next id, and this volume exists before it has a name.
    if (header.next_id != first_free) CO_TRY_VOID(co_await table_.put_header(header));
    CO_TRY(const uint32_t slot, co_await table_.free_slot());

    CatalogRecord record{.name = std::move(name), .id = header.next_id, .shared = shared, .slot = slot};
    {  // A name never appears before its volume is whole.
        CachedVolume volume(volumes_, record.id);
        CO_TRY_VOID(co_await volume.change_attributes({.size_bytes = attributes.size_bytes,
                                                       .mode = attributes.mode,
                                                       .user = attributes.user,
                                                       .group = attributes.group,
                                                       .fail_after_ms = attributes.fail_after_ms}));
        CO_TRY_VOID(co_await volume.flush_attributes());
    }
    header.next_id++;
    header.slot_count = std::max(header.slot_count, slot + 1);
    CO_TRY_VOID(co_await table_.put_header(header));
    CO_TRY_VOID(co_await table_.put(record));
    if (const Result<> committed = co_await table_.commit(slot, true); !committed) {
        // Who is told of an error must not find the name.
        (void)co_await table_.clear(slot);
        co_return fail(committed.error());
    }
    co_return record;
}

Task<Result<std::string>> Registrar::remove(std::string name, bool force) {
    CO_TRY(std::optional<CatalogRecord> record, co_await table_.find(std::move(name)));
    if (!record) co_return fail(no_such_volume);
    if (!force) {
        std::vector<std::string> users = co_await removals_.users_of(record->id);
        if (!record->shared && holds_still(*record) && record->holder != cache_.self() &&
            !(cache_.fabric() && cache_.fabric()->answers(record->holder)))
            users.emplace_back("the host that holds it, which does not answer");
        // It is not open yet after a start, and nobody else tells of it.
        if (users.empty() && record->kept && holds_still(*record))
            users.emplace_back("a block device of the host that holds it");
        if (!users.empty()) co_return print_users(users);
    }
    const CatalogRecord before = *record;
    record->removed = true;
    record->holder = no_host;
    CO_TRY_VOID(co_await table_.put(*record));
    if (const Result<> committed = co_await table_.commit(record->slot, false); !committed) {
        // It keeps its name: who is told of an error must find it as it was.
        (void)co_await table_.put(before);
        co_return fail(committed.error());
    }
    begin_to_see_off(*record);
    co_return print_record(*record);
}

Task<> Registrar::resume_removals() {
    if (!co_await cache_.home_start().ended()) co_return;
    const Result<std::vector<CatalogRecord>> records = co_await table_.list_all();
    if (!records && !cache_.abandoned())
        log::warning("catalog: what was being deleted goes on after the next start: {}",
                     log::describe(records.error()));
    if (!records || cache_.abandoned()) co_return;
    for (const CatalogRecord& record : *records)
        if (record.removed) begin_to_see_off(record);
}

// In the background: the name is gone.
Task<> Registrar::see_off(CatalogRecord record) {
    if (!co_await removals_.perform(record.id)) co_return;
    while (!cache_.abandoned()) {
        co_await turn_.acquire();
        // Hosts that have read the catalog must hear of the change; no other change may wait for those that are away.
        const Result<> forgotten = co_await as_long_as([this] { return everybody_answers(); }, forget(record));
        turn_.release();
        if (forgotten || cache_.abandoned()) co_return;
        if (forgotten.error().code != Errc::unavailable && forgotten.error().code != Errc::cancelled) {
            log::warning("catalog: the deleted volume {} is deleted once more after a restart: {}", record.id,
                         log::describe(forgotten.error()));
            co_return;
        }
        while (!everybody_answers() && !cache_.abandoned()) co_await Loop::current()->sleep(look_for_hosts_every);
    }
}

bool Registrar::everybody_answers() const {
    const Fabric* const fabric = cache_.fabric();
    const HostSet hosts = cache_.membership().host_set() & ~set_of(cache_.self());
    for (HostId host = 0; fabric && host < hosts_max; ++host)
        if (contains(hosts, host) && !fabric->answers(host) && !cache_.membership().is_dead(host)) return false;
    return true;
}

Task<Result<>> Registrar::forget(CatalogRecord record) {
    CO_TRY_VOID(co_await table_.clear(record.slot));
    co_return co_await table_.commit(record.slot, false);
}

Task<> Registrar::end_removals() {
    co_await seeing_off_.close();
    co_await removals_.end();
}

bool Registrar::holds_still(const CatalogRecord& record) const {
    if (record.holder == no_host || cache_.membership().is_dead(record.holder)) return false;
    return record.kept || record.holder_epoch == cache_.membership().process_of(record.holder).epoch;
}

Task<Result<CatalogRecord>> Registrar::hold(std::string name, HostId host, HoldNumber number, HoldKind kind) {
    // Else nobody would ever release it: the next process may have been met while this waited.
    constexpr StaticText has_ended = "registrar.hold: of a process that has ended";
    if (number.epoch != cache_.membership().process_of(host).epoch) co_return fail(Errc::closed, 0, has_ended);
    CO_TRY(std::optional<CatalogRecord> record, co_await table_.find(std::move(name)));
    if (!record) co_return fail(no_such_volume);
    if (record->shared) co_return *record;
    const bool is_held = holds_still(*record);
    if (is_held && record->holder != host)
        co_return fail(Errc::busy, EBUSY, "another host has the volume open for writing");
    if (kind == HoldKind::resumed && record->holder != host)
        co_return fail(Errc::busy, EBUSY, "another host has had the volume open for writing since");
    const CatalogRecord before = *record;
    const bool is_of_process = is_held && record->holder_epoch == number.epoch;
    record->hold = is_of_process ? std::max(record->hold, number.count) : number.count;
    record->kept = kind != HoldKind::of_process || (is_held && record->kept);
    record->holder = host;
    record->holder_epoch = number.epoch;
    const Result<CatalogRecord> held = co_await put_hold(*record);
    if (number.epoch == cache_.membership().process_of(host).epoch) co_return held;
    // The next process may have looked before this at what it has to release.
    CO_TRY_VOID(co_await put_hold(before));
    co_return fail(Errc::closed, 0, has_ended);
}

Task<Result<CatalogRecord>> Registrar::put_hold(CatalogRecord record) {
    CO_TRY_VOID(co_await table_.put(record));
    const Result<> committed = co_await table_.commit(record.slot, false);
    // With a store that takes nothing any more it is in the memory of this host alone, as all that is written now is.
    // Nobody could open a volume else, not even to save what it has.
    if (!committed && !cache_.store().failed()) co_return fail(committed.error());
    co_return record;
}

Task<Result<CatalogRecord>> Registrar::release(VolumeId id, HostId host, HoldNumber number) {
    CO_TRY(const std::vector<CatalogRecord> records, co_await table_.list());
    for (CatalogRecord record : records) {
        if (record.id != id) continue;
        // A process speaks for those of its host before it, too.
        const HoldNumber held{.epoch = record.holder_epoch, .count = record.hold};
        const bool is_meant = record.holder == host && held <= number;
        if (is_meant) record.holder = no_host;
        // Also if it is told again: the first time may have left it in memory only.
        if (is_meant || record.holder == no_host) co_return co_await put_hold(record);
        co_return record;
    }
    co_return CatalogRecord{.name = {}, .id = id};  // it was removed meanwhile
}

}  // namespace tarn
