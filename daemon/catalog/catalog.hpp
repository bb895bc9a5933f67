// Catalog: the one authority for volume names, ids and who may write. Implements Volumes for this host.
//
// Reading needs nobody: the records are coherent pages (catalog_table.hpp). Changes are made by the registrar, the
// first of the static peers, one at a time; the other hosts call it, and are told unavailable while it is away.
//
//   catalog.cpp            what every host does
//   catalog_open.cpp       the handles on this host, and what they hold
//   catalog_take_over.cpp  how an exclusive volume comes to another host
//   catalog_usage.cpp      the space that volumes take in the stores, or left behind there
//   registrar.cpp          what the registrar does
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "coherence/fabric/call_all.hpp"
#include "daemon/catalog/catalog_table.hpp"
#include "daemon/catalog/registrar.hpp"
#include "daemon/catalog/removals.hpp"
#include "frontends/volumes/cached_volume.hpp"
#include "frontends/volumes/volumes.hpp"
#include "utils/broadcast.hpp"

namespace tarn {

class Catalog final : public Volumes {
  public:
    // host_names: by host id. The volumes' context outlives the catalog.
    Catalog(VolumeContext& volumes, std::vector<Loop*> shards, std::vector<std::string> host_names);
    ~Catalog() override;

    Task<Result<std::vector<VolumeEntry>>> list() override;
    Task<Result<std::vector<VolumeEntry>>> names() override;
    Task<Result<VolumeEntry>> find(std::string name) override;
    Task<Result<VolumeEntry>> glance(std::string name) override;
    Task<Result<Attributes>> glance_at(VolumeId volume, Task<Result<Attributes>> task) override;
    Task<Result<Attributes>> unless_silent(VolumeId volume, Task<Result<Attributes>> task) override;
    using Volumes::open;
    Task<Result<std::shared_ptr<Volume>>> open(std::string name, Access access, std::shared_ptr<VolumeSession> session,
                                               std::shared_ptr<SessionRecord> record) override;
    Task<Result<std::shared_ptr<Volume>>> open_recorded(std::string name, Access access, SessionRecord& record,
                                                        bool is_resumed) override;
    void keep_held(VolumeId volume) override;
    void let_go(VolumeId volume) override;
    Task<Result<VolumeEntry>> create(std::string name, bool shared, Attributes attributes) override;
    Task<Result<Removal>> remove(std::string name, bool force) override;
    Task<Result<>> take_over(std::string name) override;
    Task<std::vector<std::string>> users_of(VolumeId volume) override { return removals_.users_of(volume); }
    Task<std::vector<Deletion>> deletions() override;
    Task<Result<Space>> space() override;
    Task<Usage> usage() override;
    // Whether the host is away or does not answer, and was not declared dead.
    bool is_silent(HostId host) const;

    // The volume's name as this host last saw it in the catalog; "#ID" if it never did. Never waits.
    std::string name_of(VolumeId id) const;

    // The ids of all volumes, also of those being deleted; nothing when the catalog cannot be read without waiting.
    Task<std::optional<std::set<VolumeId>>> volumes_there();

    // One above the greatest id that a volume has had.
    Task<Result<VolumeId>> next_volume_id();

    // Before any link can come up.
    void answer_calls(CallHandlers& calls);
    // After a start: gives back what volumes left behind here that are not in the catalog any more, and goes on with
    // what is being removed.
    Task<> clean_up();
    // The front end whose clients a removal disconnects.
    void set_clients(VolumeClients* clients) { removals_.set_clients(clients); }
    // What ends this host's block devices and NBD clients of a volume, for a host that takes it over.
    using EndClients = std::function<Task<Result<>>(VolumeId)>;
    void set_end_clients(EndClients end_clients) { end_clients_ = std::move(end_clients); }
    // After a start, once the block devices that are left keep theirs: gives back what the process before held for
    // those that are gone.
    Task<> release_left_holds();
    // Waits until this host takes part in no removal; begins none afterwards. For the stop, once the cache is
    // abandoned.
    Task<> end_removals() { return registrar_.end_removals(); }
    // At shutdown, when all handles are closed: waits until the registrar has heard of every release, or was told once
    // more in vain.
    Task<> settle();
    // Flushes every volume, also those without a name. Hosts that are gone are not asked; if one of them is home of
    // dirty pages here, that is an error. Returns the first error.
    Task<Result<>> flush_all(HostSet gone);

  private:
    static constexpr size_t answer_size_max = size_t{1} << 20;  // bytes, of an answer to another host

    Task<Result<std::shared_ptr<Volume>>> open_in(std::string name, Access access,
                                                  std::shared_ptr<VolumeSession> session,
                                                  std::shared_ptr<SessionRecord> session_record, HoldKind kind);
    Task<Result<>> flush_without(HostSet gone);
    class OpenVolume;
    // Of an exclusive volume, for the handles and block devices on this host that may write.
    struct Hold {
        unsigned handles = 0;
        unsigned devices = 0;  // without a handle: the process before held it for them
        bool is_of_device = false;
        uint32_t number = 0;  // the last one asked for
    };

    // Runs a task that may wait for other hosts, and interrupts it after the grace if one of them is silent.
    template <class T>
    Task<Result<T>> unless_silent(std::chrono::milliseconds grace, Task<Result<T>> task);
    bool somebody_is_silent() const;
    bool knows_a_volume() const;
    Task<Result<>> drop_orphans(std::vector<VolumeId> stored);
    Task<Result<std::string>> ask_registrar(std::string request);
    Task<Result<std::string>> change(HostId from, std::string request);
    Task<std::vector<HostAnswer>> ask_others(CallKind kind, std::chrono::milliseconds timeout);
    std::chrono::milliseconds glance_timeout_at(VolumeId volume) const;
    Task<Result<VolumeEntry>> entry_seen(std::string name) const;
    Task<Result<std::optional<CatalogRecord>>> look_up(std::string name);
    Task<Result<std::vector<CatalogRecord>>> records();
    HostId registrar_host() const { return cache_.membership().registrar(); }
    bool is_registrar() const { return registrar_host() == cache_.self(); }
    bool recall(Result<std::vector<CatalogRecord>>& records) const;
    // As the registrar has them: for when the catalog's pages cannot be had, because a host that has read them does not
    // answer.
    Task<Result<std::vector<CatalogRecord>>> records_of_registrar();
    Task<Result<std::string>> answer_records();
    Task<Result<std::string>> tell_space() const;
    Task<Result<std::string>> tell_usage() const;
    StaticText about(HostId host, std::string_view what) const;
    std::unexpected<Error> silence_of(HostId host) const;
    Error silence_at_catalog(const Error& error) const;
    Error in_words(const Error& error) const;
    VolumeEntry entry_without_attributes(CatalogRecord record) const;
    Task<Result<VolumeEntry>> entry_of(CatalogRecord record);
    Task<Result<Attributes>> attributes_of(VolumeId id, std::chrono::milliseconds timeout);
    std::optional<Attributes> last_seen(VolumeId id) const;
    // The host that an access to the page waits for, as far as this host knows.
    HostId silent_host(PageId page) const;
    Task<Result<std::string>> give_up(HostId to, std::string request);
    bool holds(VolumeId volume);
    Task<Result<>> hold(const CatalogRecord& record, HoldKind kind);
    void release_unless_used(VolumeId id);
    Task<Result<>> release_left_ones();
    HoldNumber hold_number(uint32_t count) const;
    void release_hold(VolumeId id);
    void begin_release(VolumeId id, uint32_t number);
    Task<> tell_released(VolumeId id, uint32_t number);

    VolumeContext& volumes_;
    Cache& cache_;
    std::vector<Loop*> shards_;
    std::vector<std::string> host_names_;
    CachedVolume records_;
    CatalogTable table_;
    Removals removals_;
    Registrar registrar_;
    std::atomic<std::chrono::steady_clock::time_point> waits_again_at_;  // a glance at what was never seen here
    std::atomic<unsigned> releases_{0};                                  // on their way to the registrar
    std::atomic<bool> settling_{false};
    Broadcast released_;
    EndClients end_clients_;
    std::mutex holds_mutex_;  // never held across a wait
    std::map<VolumeId, Hold> holds_;
    uint32_t holds_asked_for_ = 0;
    mutable std::mutex seen_mutex_;  // the same
    std::map<VolumeId, std::string> names_;
    std::map<VolumeId, Attributes> attributes_;
    std::vector<CatalogRecord> records_seen_;  // by the last list
    std::map<HostId, StoreSpace> spaces_;      // as they were last told
    mutable std::mutex texts_mutex_;
    mutable std::set<std::string> texts_;  // of errors
};

}  // namespace tarn
