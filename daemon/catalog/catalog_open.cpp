// Catalog: the handles that clients on this host have open, and the exclusive volumes that they hold.
#include <algorithm>
#include <mutex>

#include "daemon/catalog/catalog.hpp"
#include "utils/log.hpp"

namespace tarn {

// A handle that may write; the hold of an exclusive volume lasts as long as any of them.
class Catalog::OpenVolume final : public CachedVolume {
  public:
    OpenVolume(Catalog& catalog, std::shared_ptr<ClientSession> session, VolumeUses::Use use, bool holds)
        : CachedVolume(catalog.volumes_, std::move(session)), catalog_(catalog), use_(std::move(use)), holds_(holds) {}
    ~OpenVolume() override {
        if (holds_) catalog_.release_hold(id());
    }

  private:
    Catalog& catalog_;
    VolumeUses::Use use_;
    bool holds_;
};

Task<Result<std::shared_ptr<Volume>>> Catalog::open(std::string name, Access access,
                                                    std::shared_ptr<VolumeSession> session,
                                                    std::shared_ptr<SessionRecord> record) {
    return open_in(std::move(name), access, std::move(session), std::move(record), HoldKind::of_process);
}

Task<Result<std::shared_ptr<Volume>>> Catalog::open_recorded(std::string name, Access access, SessionRecord& record,
                                                             bool is_resumed) {
    const std::shared_ptr<SessionRecord> of_device(std::shared_ptr<void>(), &record);  // its memory outlives all
    return open_in(std::move(name), access, nullptr, of_device, is_resumed ? HoldKind::resumed : HoldKind::of_device);
}

Task<Result<std::shared_ptr<Volume>>> Catalog::open_in(std::string name, Access access,
                                                       std::shared_ptr<VolumeSession> session,
                                                       std::shared_ptr<SessionRecord> session_record, HoldKind kind) {
    CO_TRY(std::optional<CatalogRecord> record, co_await look_up(std::move(name)));
    if (!record) co_return fail(no_such_volume);
    // From now on its removal waits for us.
    VolumeUses::Use use(cache_.uses(), record->id);
    // Who could not even say how large the volume is must not hold it.
    CO_TRY(const VolumeEntry entry, co_await entry_of(*record));
    const bool holds = access == Access::write && !record->shared;
    if (holds) CO_TRY_VOID(co_await hold(*record, kind));
    auto own = std::static_pointer_cast<ClientSession>(session);  // who makes sessions is this catalog alone
    if (!own || own->session.volume != record->id) {
        co_await cache_.flusher().hear_from_homes();
        own = session_record ? std::make_shared<ClientSession>(cache_, record->id, std::move(session_record))
                             : std::make_shared<ClientSession>(cache_, record->id, OnLoss::fail);
    }
    auto volume = std::make_shared<OpenVolume>(*this, std::move(own), std::move(use), holds);
    volume->wait_at_most(std::chrono::milliseconds(entry.attributes.fail_after_ms));
    // Unless it did not know of us. Last of all: whoever has it now is found by who ends its clients.
    CO_TRY(const std::optional<CatalogRecord> still, co_await look_up(record->name));
    if (!still || still->id != record->id) co_return fail(no_such_volume);
    co_return std::shared_ptr<Volume>(std::move(volume));
}

Task<Result<>> Catalog::hold(const CatalogRecord& record, HoldKind kind) {
    uint32_t number = 0;
    {
        const std::lock_guard guard(holds_mutex_);
        const auto found = holds_.find(record.id);
        const bool is_held = found != holds_.end() && found->second.handles > 0;
        if (is_held && (kind == HoldKind::of_process || found->second.is_of_device)) {
            ++found->second.handles;
            co_return Result<>{};
        }
        number = ++holds_asked_for_;
    }
    const Result<std::string> answer = co_await ask_registrar(hold_request(record.name, hold_number(number), kind));
    if (!answer && answer.error().code == Errc::busy) {
        CO_TRY(const std::optional<CatalogRecord> held, co_await look_up(record.name));
        if (held && held->holder < host_names_.size())
            co_return fail(Errc::busy, EBUSY, about(held->holder, " has the volume open for writing"));
    }
    bool is_held = false;
    {
        const std::lock_guard guard(holds_mutex_);
        if (answer) {
            Hold& held = holds_[record.id];
            ++held.handles;
            held.is_of_device |= kind != HoldKind::of_process;
        }
        const auto found = holds_.find(record.id);
        is_held = found != holds_.end();
        if (is_held) found->second.number = std::max(found->second.number, number);
    }
    if (answer) co_return Result<>{};
    if (!is_held) begin_release(record.id, number);  // the registrar may have granted it
    co_return fail(answer.error());
}

HoldNumber Catalog::hold_number(uint32_t count) const {
    return {.epoch = cache_.membership().process().epoch, .count = count};
}

void Catalog::release_hold(VolumeId id) {
    {
        const std::lock_guard guard(holds_mutex_);
        const auto found = holds_.find(id);
        TARN_ASSERT(found != holds_.end() && found->second.handles > 0);
        --found->second.handles;
    }
    release_unless_used(id);
}

void Catalog::keep_held(VolumeId volume) {
    const std::lock_guard guard(holds_mutex_);
    ++holds_[volume].devices;
}

void Catalog::let_go(VolumeId volume) {
    {
        const std::lock_guard guard(holds_mutex_);
        const auto found = holds_.find(volume);
        TARN_ASSERT(found != holds_.end() && found->second.devices > 0);
        --found->second.devices;
    }
    release_unless_used(volume);
}

void Catalog::release_unless_used(VolumeId id) {
    uint32_t number = 0;
    {
        const std::lock_guard guard(holds_mutex_);
        const auto found = holds_.find(id);
        if (found == holds_.end() || found->second.handles > 0 || found->second.devices > 0) return;
        number = found->second.number;
        holds_.erase(found);
    }
    begin_release(id, number);
}

Task<> Catalog::release_left_holds() {
    constexpr std::chrono::seconds look_again_after{1};
    for (bool has_said = false; !cache_.abandoned(); co_await Loop::current()->sleep(look_again_after)) {
        const Result<> released = co_await release_left_ones();
        if (released || cache_.abandoned()) co_return;
        if (!std::exchange(has_said, true))
            log::info(
                "catalog: the list of volumes cannot be read yet; if block devices of an earlier start are gone, other "
                "hosts can open their volumes once it can: {}",
                log::describe(released.error()));
    }
}

Task<Result<>> Catalog::release_left_ones() {
    CO_TRY(const std::vector<CatalogRecord> records, co_await table_.list());
    for (const CatalogRecord& record : records) {
        if (record.kept && record.holder == cache_.self() && !holds(record.id)) begin_release(record.id, 0);
    }
    co_return Result<>{};
}

void Catalog::begin_release(VolumeId id, uint32_t number) {
    if (!Loop::current() || cache_.abandoned()) return;
    releases_.fetch_add(1, std::memory_order_relaxed);
    Loop::current()->spawn(tell_released(id, number));
}

// However long the registrar is away: else the volume would stay held by nobody.
Task<> Catalog::tell_released(VolumeId id, uint32_t number) {
    constexpr std::chrono::milliseconds look_again_after{200};
    for (bool is_first = true;; is_first = false) {
        const auto answer = co_await ask_registrar(release_request(id, hold_number(number)));
        if (answer || cache_.abandoned()) break;
        if (is_first)
            log::warning("catalog: {} was closed here; other hosts cannot open it before the registrar hears so: {}",
                         name_of(id), log::describe(answer.error()));
        if (answer.error().code != Errc::unavailable || settling_.load(std::memory_order_seq_cst)) break;
        co_await Loop::current()->sleep(look_again_after);
    }
    releases_.fetch_sub(1, std::memory_order_seq_cst);
    released_.announce();
}

Task<> Catalog::settle() {
    settling_.store(true, std::memory_order_seq_cst);
    for (uint64_t seen = released_.count(); releases_.load(std::memory_order_seq_cst) > 0; seen = released_.count())
        co_await released_.next(seen);
}

}  // namespace tarn
