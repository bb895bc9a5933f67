#include "daemon/catalog/catalog.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "utils/run_on.hpp"
#include "utils/with_timeout.hpp"

namespace tarn {

namespace {
using std::chrono::milliseconds;
using std::chrono::steady_clock;

// How long a host is waited for that may be gone: by who needs the catalog or looks for a file that was never seen
// here, by who opens a volume whose own timeout is not known, and by who lists them all. Once that is over, a list
// waits a moment only for each of the others.
constexpr milliseconds catalog_timeout{5000};
constexpr milliseconds open_timeout{10'000};
constexpr milliseconds list_timeout{1500};
constexpr milliseconds list_timeout_max = 2 * list_timeout;
constexpr milliseconds moment{100};
// The same when one of the hosts is known to be silent: by who only wants to know, and by who changes the catalog.
constexpr milliseconds glance_timeout{200};
constexpr milliseconds change_timeout{800};

constexpr std::string_view does_not_answer = " does not answer";

}  // namespace

Catalog::Catalog(VolumeContext& volumes, std::vector<Loop*> shards, std::vector<std::string> host_names)
    : volumes_(volumes),
      cache_(volumes.cache),
      shards_(std::move(shards)),
      host_names_(std::move(host_names)),
      records_(volumes, catalog_volume, OnLoss::revert),  // nobody was told of a change that was not flushed
      table_(records_),
      removals_(cache_, shards_, host_names_),
      registrar_(volumes, table_, removals_) {
    records_.wait_at_most(catalog_timeout);
}

Catalog::~Catalog() = default;

// The text lasts as long as the catalog: whoever asks it, and hears of an error by the text, ends before it does.
StaticText Catalog::about(HostId host, std::string_view what) const {
    const std::lock_guard guard(texts_mutex_);
    return StaticText::vouched_for(texts_.insert(fmt::format("host {}{}", host_names_[host], what)).first->c_str());
}

std::unexpected<Error> Catalog::silence_of(HostId host) const {
    return fail(Errc::unavailable, EIO, about(host, does_not_answer));
}

bool Catalog::is_silent(HostId host) const {
    return host != cache_.self() && cache_.fabric() && !cache_.fabric()->answers(host) &&
           !cache_.membership().is_dead(host);
}

bool Catalog::somebody_is_silent() const {
    for (HostId host = 0; host < static_cast<HostId>(host_names_.size()); ++host)
        if (is_silent(host)) return true;
    return false;
}

template <class T>
Task<Result<T>> Catalog::unless_silent(milliseconds grace, Task<Result<T>> task) {
    const auto began = steady_clock::now();
    const auto goes_on = [this, began, grace] { return steady_clock::now() - began < grace || !somebody_is_silent(); };
    Result<T> result = co_await as_long_as(goes_on, std::move(task));
    Interrupt* const interrupt = co_await this_interrupt;
    const bool by_us = !(interrupt && interrupt->raised()) && !cache_.abandoned();
    if (!result && result.error().code == Errc::cancelled && by_us)
        co_return fail(Errc::unavailable, 0, "catalog: a host does not answer");
    co_return result;
}

// The error of an access to the catalog, or of a change, with the name of the host that keeps it from ending.
Error Catalog::silence_at_catalog(const Error& error) const {
    if (error.code != Errc::unavailable || !cache_.fabric()) return error;
    const HostId host = silent_host(PageId::of(catalog_volume, 0));
    if (host == registrar_host() && !is_registrar())
        return {Errc::unavailable, 0, about(host, ", the registrar, is away")};
    return host == cache_.self() ? error : Error{Errc::unavailable, 0, about(host, does_not_answer)};
}

// Another host's error is but a code when it comes here.
Error Catalog::in_words(const Error& error) const {
    if (std::string_view(error.where) != Fabric::answer_of_host) return error;
    const Errc code = error.code;
    switch (code) {
        case Errc::not_found: return no_such_volume;
        case Errc::exists:
            return {code, EEXIST, "the name, or a part of it, is that of a volume or of a directory of volumes"};
        case Errc::busy: return {code, EBUSY, "another host has the volume open for writing"};
        case Errc::no_space: return {code, ENOSPC, about(registrar_host(), ", the registrar, has no space")};
        default: return error;
    }
}

Task<Result<std::string>> Catalog::ask_registrar(std::string request) {
    Result<std::string> answer = fail(Errc::unavailable);
    if (is_registrar()) {
        answer = co_await run_on(*shards_.front(), change(cache_.self(), std::move(request)));
    } else if (!is_silent(registrar_host())) {
        const auto is_there = [this] { return !is_silent(registrar_host()); };
        answer = co_await as_long_as(
            is_there, interruptible(cache_.fabric()->call(registrar_host(), CallKind::change, std::move(request))));
        if (!answer && answer.error().code == Errc::cancelled && is_silent(registrar_host()))
            co_return fail(
                Errc::unavailable, 0,
                about(registrar_host(), ", the registrar, does not answer any more; it may still do what it was told"));
    }
    if (!answer) co_return fail(silence_at_catalog(in_words(answer.error())));
    co_return answer;
}

// As the registrar, on its first shard.
Task<Result<std::string>> Catalog::change(HostId from, std::string request) {
    Result<std::string> answer = co_await unless_silent(change_timeout, registrar_.change(from, std::move(request)));
    if (!answer) co_return fail(silence_at_catalog(answer.error()));
    co_return answer;
}

Task<Result<std::string>> Catalog::answer_records() {
    CO_TRY(const std::vector<CatalogRecord> records, co_await this->records());
    std::string answer;
    for (const CatalogRecord& record : records) answer += print_record(record) + "\n";
    if (answer.size() > answer_size_max) co_return fail(Errc::unsupported, 0, "catalog: there are too many volumes");
    co_return answer;
}

Task<Result<std::vector<CatalogRecord>>> Catalog::records_of_registrar() {
    if (is_silent(registrar_host())) co_return fail(Errc::unavailable);
    const auto is_there = [this] { return !is_silent(registrar_host()); };
    CO_TRY(const std::string answer,
           co_await as_long_as(is_there, interruptible(cache_.fabric()->call(registrar_host(), CallKind::records))));
    std::vector<CatalogRecord> records;
    for (size_t at = 0; at < answer.size();) {
        const size_t end = std::min(answer.find('\n', at), answer.size());
        CO_TRY(CatalogRecord record, parse_record(answer.substr(at, end - at)));
        records.push_back(std::move(record));
        at = end + 1;
    }
    co_return records;
}

void Catalog::answer_calls(CallHandlers& calls) {
    calls.set(CallKind::space, [this](HostId, const std::string&) { return tell_space(); });
    calls.set(CallKind::usage, [this](HostId, const std::string&) { return tell_usage(); });
    calls.set(CallKind::removal, [this](HostId from, std::string request) {
        return removals_.on_call(std::move(request), from == registrar_host());
    });
    calls.set(CallKind::give_up, [this](HostId from, std::string request) {
        return run_on(*shards_.front(), give_up(from, std::move(request)));
    });
    if (!is_registrar()) return;
    calls.set(CallKind::records, [this](HostId, const std::string&) { return answer_records(); });
    calls.set(CallKind::change, [this](HostId from, std::string request) {
        return run_on(*shards_.front(), change(from, std::move(request)));
    });
}

Task<Result<std::optional<CatalogRecord>>> Catalog::look_up(std::string name) {
    Result<std::optional<CatalogRecord>> record = co_await table_.find(name);
    if (!record && record.error().code == Errc::unavailable) {
        CO_TRY(const std::vector<CatalogRecord> records, co_await this->records());
        const auto found = std::ranges::find(records, name, &CatalogRecord::name);
        record = found == records.end() ? std::nullopt : std::optional(*found);
    }
    if (record && *record) {
        const std::lock_guard guard(seen_mutex_);
        names_[(*record)->id] = (*record)->name;
    }
    co_return record;
}

Task<Result<VolumeId>> Catalog::next_volume_id() {
    CO_TRY(const CatalogHeader header, co_await table_.header());
    co_return header.next_id;
}

std::string Catalog::name_of(VolumeId id) const {
    if (id == catalog_volume) return "the catalog";
    const std::lock_guard guard(seen_mutex_);
    const auto found = names_.find(id);
    return found != names_.end() ? found->second : fmt::format("#{}", id);
}

HostId Catalog::silent_host(PageId page) const {
    const HostId home = cache_.home_of(page);
    if (is_silent(home)) return home;
    for (HostId host = 0; host < static_cast<HostId>(host_names_.size()); ++host)
        if (is_silent(host)) return host;
    return home;
}

VolumeEntry Catalog::entry_without_attributes(CatalogRecord record) const {
    VolumeEntry entry{.name = std::move(record.name), .id = record.id, .shared = record.shared};
    if (record.holder >= host_names_.size() || record.shared) return entry;
    const bool has_ended = !record.kept && cache_.membership().process_of(record.holder).epoch > record.holder_epoch;
    if (!has_ended) entry.holder = host_names_[record.holder];
    return entry;
}

std::optional<Attributes> Catalog::last_seen(VolumeId id) const {
    const std::lock_guard guard(seen_mutex_);
    const auto found = attributes_.find(id);
    return found == attributes_.end() ? std::nullopt : std::optional(found->second);
}

Task<Result<Attributes>> Catalog::attributes_of(VolumeId id, milliseconds timeout) {
    // Nobody's session: who asks has seen nothing yet, and is told what there is.
    CachedVolume volume(volumes_, id, OnLoss::revert);
    volume.wait_at_most(timeout);
    const Result<Attributes> attributes = co_await volume.attributes();
    if (attributes) {
        const std::lock_guard guard(seen_mutex_);
        attributes_[id] = *attributes;
    } else if (attributes.error().code == Errc::unavailable) {
        co_return silence_of(silent_host(attribute_page_of(id)));
    }
    co_return attributes;
}

Task<Result<VolumeEntry>> Catalog::entry_of(CatalogRecord record) {
    VolumeEntry entry = entry_without_attributes(std::move(record));
    const std::optional<Attributes> before = last_seen(entry.id);
    const bool says_how_long = before && before->fail_after_ms != 0;
    CO_TRY(entry.attributes,
           co_await attributes_of(entry.id, says_how_long ? milliseconds(before->fail_after_ms) : open_timeout));
    co_return entry;
}

Task<Result<std::vector<CatalogRecord>>> Catalog::records() {
    Result<std::vector<CatalogRecord>> records = co_await table_.list();
    // Once they were waited for in vain, the next do not wait so long, until they can be had again.
    const bool may_ask = !is_registrar();
    records_.wait_at_most(records || !may_ask ? catalog_timeout : moment);
    if (!records && records.error().code == Errc::unavailable) {
        const Error error = silence_at_catalog(records.error());
        if (may_ask) records = co_await records_of_registrar();
        if (!records) co_return fail(error);
    }
    if (!records) co_return records;
    std::ranges::sort(*records, {}, &CatalogRecord::name);
    const std::lock_guard guard(seen_mutex_);
    for (const CatalogRecord& record : *records) names_[record.id] = record.name;
    records_seen_ = *records;
    co_return records;
}

// Instead of records that cannot be had at present, those of the last list, if there are any: whether it is so.
bool Catalog::recall(Result<std::vector<CatalogRecord>>& records) const {
    const std::lock_guard guard(seen_mutex_);
    const bool recalls = !records && records.error().code == Errc::unavailable && !records_seen_.empty();
    if (recalls) records = records_seen_;
    return recalls;
}

Task<Result<std::vector<VolumeEntry>>> Catalog::names() {
    Result<std::vector<CatalogRecord>> records = co_await unless_silent(glance_timeout, this->records());
    recall(records);
    if (!records) co_return fail(records.error());
    std::vector<VolumeEntry> entries;
    for (const CatalogRecord& record : *records) entries.push_back(entry_without_attributes(record));
    co_return entries;
}

Task<Result<std::vector<VolumeEntry>>> Catalog::list() {
    Result<std::vector<CatalogRecord>> records = co_await this->records();
    std::string silent_catalog;
    if (recall(records)) silent_catalog = host_names_[silent_host(PageId::of(catalog_volume, 0))];
    if (!records) co_return fail(records.error());
    std::vector<VolumeEntry> entries;
    const auto began = steady_clock::now();
    HostSet silent = 0;
    for (CatalogRecord& record : *records) {
        VolumeEntry& entry = entries.emplace_back(entry_without_attributes(std::move(record)));
        const PageId page = attribute_page_of(entry.id);
        const auto passed = std::chrono::duration_cast<milliseconds>(steady_clock::now() - began);
        // The pages that this host has need nobody.
        const bool waits = passed < list_timeout_max && !contains(silent, cache_.home_of(page));
        const Result<Attributes> attributes =
            co_await attributes_of(entry.id, waits ? std::max(list_timeout - passed, moment) : milliseconds(1));
        entry.silent_host = silent_catalog;
        if (attributes) {
            entry.attributes = *attributes;
            continue;
        }
        if (attributes.error().code != Errc::unavailable) co_return fail(attributes.error());
        const HostId host = silent_host(page);
        if (host == cache_.home_of(page)) silent |= set_of(host);
        const std::optional<Attributes> before = last_seen(entry.id);
        entry.silent_host = host_names_[host];
        entry.attributes_seen = before.has_value();
        entry.attributes = before.value_or(Attributes{});
    }
    co_return entries;
}

Task<Result<VolumeEntry>> Catalog::find(std::string name) {
    CO_TRY(std::optional<CatalogRecord> record, co_await look_up(std::move(name)));
    if (!record) co_return fail(no_such_volume);
    co_return co_await entry_of(std::move(*record));
}

Task<Result<VolumeEntry>> Catalog::glance(std::string name) {
    const auto record = co_await unless_silent(glance_timeout, look_up(name));
    Result<VolumeEntry> entry = fail(record ? no_such_volume : record.error());
    if (record && *record) entry = co_await unless_silent(glance_timeout_at((*record)->id), entry_of(**record));
    if (!entry && entry.error().code == Errc::unavailable) entry = co_await entry_seen(name);
    if (entry || entry.error().code != Errc::unavailable) co_return entry;
    // The caller may be about to open the volume, so it waits; but who lists many must not wait for each of them.
    if (!somebody_is_silent() || steady_clock::now() >= waits_again_at_.load())
        entry = co_await unless_silent(catalog_timeout, find(std::move(name)));
    if (entry || entry.error().code != Errc::unavailable) co_return entry;
    waits_again_at_ = steady_clock::now() + catalog_timeout;
    if (record && *record && somebody_is_silent()) co_return silence_of(silent_host(attribute_page_of((*record)->id)));
    co_return entry;
}

// For what is not at hand, none, if it is known who would have to be waited for.
milliseconds Catalog::glance_timeout_at(VolumeId volume) const {
    return is_silent(cache_.home_of(attribute_page_of(volume))) ? milliseconds(0) : glance_timeout;
}

Task<Result<Attributes>> Catalog::glance_at(VolumeId volume, Task<Result<Attributes>> task) {
    Result<Attributes> attributes = co_await unless_silent(glance_timeout_at(volume), std::move(task));
    if (attributes || attributes.error().code != Errc::unavailable) co_return attributes;
    const std::optional<Attributes> before = last_seen(volume);
    if (before) co_return *before;
    co_return silence_of(silent_host(attribute_page_of(volume)));
}

Task<Result<Attributes>> Catalog::unless_silent(VolumeId volume, Task<Result<Attributes>> task) {
    Result<Attributes> attributes = co_await unless_silent(change_timeout, std::move(task));
    if (!attributes && attributes.error().code == Errc::unavailable && somebody_is_silent())
        co_return silence_of(silent_host(attribute_page_of(volume)));
    co_return attributes;
}

// As it was when this host last saw it.
Task<Result<VolumeEntry>> Catalog::entry_seen(std::string name) const {
    Result<VolumeEntry> entry = fail(Errc::unavailable, EIO, "catalog: a host does not answer");
    const std::lock_guard guard(seen_mutex_);
    const auto record = std::ranges::find(records_seen_, name, &CatalogRecord::name);
    if (record == records_seen_.end()) co_return entry;
    const auto attributes = attributes_.find(record->id);
    const HostId silent = silent_host(attribute_page_of(record->id));
    if (attributes == attributes_.end()) co_return silence_of(silent);
    entry = entry_without_attributes(*record);
    entry->attributes = attributes->second;
    entry->silent_host = host_names_[silent];
    co_return entry;
}

Task<Result<VolumeEntry>> Catalog::create(std::string name, bool shared, Attributes attributes) {
    if (!valid_volume_name(name)) co_return fail(Errc::invalid, EINVAL, "not a valid volume name");
    CO_TRY(const std::string answer, co_await ask_registrar(create_request(name, shared, attributes)));
    CO_TRY(CatalogRecord record, parse_record(answer));
    co_return co_await entry_of(std::move(record));
}

Task<Result<Removal>> Catalog::remove(std::string name, bool force) {
    CO_TRY(const std::string answer, co_await ask_registrar(remove_request(name, force)));
    co_return Removal{.users = parse_users(answer)};
}

Task<std::vector<Deletion>> Catalog::deletions() {
    std::vector<Deletion> deletions;
    const auto records = co_await unless_silent(glance_timeout, table_.list_all());
    if (!records) co_return deletions;
    for (const CatalogRecord& record : *records) {
        if (!record.removed) continue;
        Deletion& deletion = deletions.emplace_back(Deletion{.name = record.name, .id = record.id});
        removals_.explain(deletion);
    }
    co_return deletions;
}

Task<std::optional<std::set<VolumeId>>> Catalog::volumes_there() {
    const auto records = co_await unless_silent(glance_timeout, table_.list_all());
    if (!records) co_return std::nullopt;
    std::set<VolumeId> volumes;
    const std::lock_guard guard(seen_mutex_);
    for (const CatalogRecord& record : *records) {
        volumes.insert(record.id);
        names_[record.id] = record.name;
    }
    co_return volumes;
}

bool Catalog::knows_a_volume() const {
    const std::lock_guard guard(seen_mutex_);
    return !names_.empty();
}

Task<Result<>> Catalog::flush_all(HostSet gone) {
    // A home that does not serve yet was sent nothing, and a volume of which no name is known was not opened. So
    // nothing was written here, unless by the process whose memory this one has.
    const bool has_adopted = cache_.adopted_page_count() > 0 || cache_.dirty_frame_count() > 0;
    if (cache_.membership().recovering() && !knows_a_volume() && !has_adopted) co_return Result<>{};
    // Whom neither this process nor the one whose memory it has ever met can have nothing of ours.
    bool met_nobody = true;
    for (HostId host = 0; host < static_cast<HostId>(host_names_.size()); ++host)
        met_nobody &= host == cache_.self() || cache_.membership().incarnation_of(host) == 0;
    if (met_nobody) gone = cache_.membership().host_set() & ~set_of(cache_.self());
    Result<> result;
    const bool is_alone = gone != 0 && (gone | set_of(cache_.self())) == cache_.membership().host_set();
    if (!is_alone) result = co_await flush_without(gone);  // else its store takes what is left
    bool owes_bytes = false;
    cache_.pages().dirty_frames().for_each(
        [&](FrameId id) { owes_bytes |= contains(gone, cache_.home_of(cache_.pool().frame(id).page_id())); });
    if (owes_bytes && result) co_return fail(Errc::unavailable, 0, "flush: a host has gone without all bytes");
    co_return result;
}

Task<Result<>> Catalog::flush_without(HostSet gone) {
    const Result<std::vector<CatalogRecord>> records = co_await table_.list();
    if (!records) co_return fail(silence_at_catalog(records.error()));
    std::vector<VolumeId> volumes = cache_.home_store().writer().dirty_volumes();
    for (const CatalogRecord& record : *records)
        if (std::ranges::find(volumes, record.id) == volumes.end()) volumes.push_back(record.id);
    Result<> result = contains(gone, registrar_host()) ? Result<>() : co_await table_.flush();
    // A home that has restarted meanwhile has lost nothing of the sessions that begin here.
    co_await cache_.flusher().hear_from_homes();
    for (const VolumeId id : volumes) {
        if (id == catalog_volume) continue;
        CachedVolume volume(volumes_, id);
        const Result<> flushed =
            co_await (gone == 0 ? volume.flush() : volume.flush_homes(cache_.membership().host_set() & ~gone));
        if (!flushed && result) result = flushed;
    }
    co_return result;
}

}  // namespace tarn
