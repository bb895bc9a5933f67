// What the verbs ask of the daemon, and the JSON that each answers with: one shape per verb, however many names it got.
#pragma once

#include <chrono>
#include <ostream>
#include <string>
#include <vector>

#include "daemon/attachments/block_device.hpp"
#include "daemon/attachments/nbd_driver.hpp"
#include "daemon/cli/client.hpp"
#include "daemon/cli/init.hpp"
#include "daemon/cli/stopped_store.hpp"
#include "daemon/cli/tls_init.hpp"
#include "daemon/configuration/configuration.hpp"

namespace tarn {

// What the command line said; each verb reads its own part.
struct Options {
    std::string control = control_path_default;
    unsigned timeout_s = 60;
    std::chrono::seconds timeout() const { return std::chrono::seconds(timeout_s); }
    bool json = false;
    bool quiet = false;
    std::string name;                // of the verbs for one
    std::vector<std::string> names;  // of those for several
    std::string host;
    std::string size;
    std::string mode = "0600";
    std::string fail_after = "wait";
    std::string path;
    bool shared = false;
    bool exclusive = false;
    bool force = false;
    bool read_only = false;
    bool take_over = false;
    bool io_uring = false;
    unsigned block_size_bytes = 4096;
    unsigned connections = 0;
    std::string attach_table;  // of attach: where its other options are; empty: on the command line
    bool if_attached = false;
    bool whole_host = false;
    bool stop = false;
    bool it_is_dead = false;
    bool shards = false;
    bool links = false;
    InitOptions init;
    std::vector<std::string> tls_hosts;
    RepairOptions repair;
    std::ostream* progress = nullptr;  // where a person sees how far it is; none: nowhere
};

// Some of the names may have failed, and others not.
struct Answer {
    Json json = Json::object();
    std::vector<Failure> failures;
    std::vector<std::string> warnings;  // it succeeded, but

    Answer() = default;
    Answer(Json answered) : json(std::move(answered)) {}
    Answer(Failure failure) { failures.push_back(std::move(failure)); }
    Answer(Outcome<Json> outcome) {
        if (outcome)
            json = *std::move(outcome);
        else
            failures.push_back(std::move(outcome).error());
    }
};

Answer create_volume(const Client& client, const Options& options);
Answer show_volumes(const Client& client, const Options& options);
Answer resize_volume(const Client& client, const Options& options);
// Asks no daemon.
Answer examine_machine(const Client& client, const Options& options);
Answer delete_volumes(const Client& client, const Options& options);
Answer flush_volumes(const Client& client, const Options& options);
Answer export_volumes(const Client& client, const Options& options);
Answer verify_volumes(const Client& client, const Options& options);
Answer mount_volumes(const Client& client, const Options& options);
Answer unmount_volumes(const Client& client, const Options& options);
Answer attach_volume(const Client& client, const Options& options);
Answer detach_volume(const Client& client, const Options& options);
// The same, with a kernel that a test may play.
Answer detach_from(NbdDriver& driver, const BlockDevices& devices, const Options& options);
Answer list_attached(const Client& client, const Options& options);
Answer forget_host(const Client& client, const Options& options);

// " (rounded up from 5000 bytes to whole pages of 4 KiB)", if it was.
std::string rounding_note(const std::string& size, const Json& volumes);

}  // namespace tarn
