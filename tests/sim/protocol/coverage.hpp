// Coverage: how often the important races were reached ("sometimes" assertions). A big run fails if one never was.
#pragma once

#include <array>
#include <cstdint>
#include <cstdio>

namespace tarn::sim {

enum class Sometimes : uint8_t {
    upgrade_lost_to_another,
    order_before_grant,
    order_before_bytes,
    copy_after_drop,
    eviction_refused,
    eviction_met_an_order,
    write_back_met_a_move,
    home_copy_out_of_order,
    write_woken_blank,
    waiter_cancelled,
    frames_exhausted,
    flush_waited_for_a_copy,
    no_space,
    zeros_sent,
    write_lease_used,
    write_lease_spent,
    last_copy_kept,
    home_bytes_at_hand,
    run_sent,
    batch_sent,
    run_partly_granted,
    run_met_an_owner,
    evictions_partly_refused,
    joined_grant_sent,
    joined_grant_met_an_order,
    held_grant_sent_alone,
    request_of_many_pages,
    request_latched_at_once,
    bytes_sent_late,
    frame_freed_when_sent,
    writer_waited_for_a_send,
    // With faults.
    host_crashed,
    flush_asked_an_anchor,
    link_cut,
    page_recalled,
    recalled_while_waiting,
    kept_bytes_reported,
    loss_recorded,
    write_lost,
    flush_failed,
    home_restarted_with_owner,
    home_restarted_with_readers,
    stored_bytes_win,
    host_forgotten,
    forgotten_owner,
    memory_adopted,
    losses_unrecorded,
    run_lost_with_link,
    run_granted_while_resolving,
    joined_grant_of_an_undone_request,
    read_refused,
    session_counts_from_use,
    request_met_a_loss,
    request_repeated,
    flush_repeated,
    left_bare,
    direction_stuck,
    stuck_messages_late,
    stuck_messages_lost,
    lost_before_its_side_was_up,
    host_paused,
    messages_piled_up,
    store_failed,
    flushes_failed_by_another,
    bytes_refused_by_failed_store,
    mark_awaited,
    mark_cleared,
    count,
};

inline constexpr std::array<const char*, static_cast<size_t>(Sometimes::count)> sometimes_names = {
    "upgrade lost to another",
    "order before grant",
    "order before bytes",
    "copy after drop",
    "eviction refused",
    "eviction met an order",
    "write-back met a move",
    "home copy out of order",
    "write woken on a blank page",
    "waiter cancelled",
    "frames exhausted",
    "flush waited for a copy",
    "no space",
    "zeros sent",
    "write lease used",
    "write lease spent",
    "last copy kept by home",
    "home's bytes at hand",
    "run of pages sent",
    "batch of runs sent",
    "run granted in part",
    "run met another's page",
    "evictions of a batch refused in part",
    "joined grant sent",
    "joined grant met an order",
    "grant sent, its bytes later",
    "request over several pages",
    "request found all pages and latched them",
    "bytes sent later than handed over",
    "frame free only when its bytes were sent",
    "writer waited for a send",
    "host crashed",
    "flush asked an anchor",
    "link cut",
    "page recalled",
    "recalled while waiting",
    "kept bytes reported",
    "loss recorded",
    "write lost",
    "flush failed",
    "home restarted, owner confirmed",
    "home restarted, readers confirmed",
    "home restarted, stored bytes win",
    "host forgotten",
    "host forgotten, owner of a page",
    "memory of a process adopted",
    "home that has others' losses unrecorded",
    "run or batch lost with its link",
    "run granted in part by a resolve",
    "joined grant nobody waits for",
    "read of lost writes refused",
    "session used a page of a silent home",
    "request over pages met a loss",
    "request repeated over a new link",
    "flush repeated over a new link",
    "a frame left before home had answered its eviction",
    "one direction of a link stuck",
    "stuck messages delivered late",
    "stuck messages lost with the link",
    "lost before its side of the link was up",
    "host paused",
    "many messages for a paused host",
    "store failed",
    "flush failed as another found the store failed",
    "bytes refused by a home whose store failed",
    "request waited for a mark",
    "mark cleared",
};
inline constexpr auto first_of_faults = Sometimes::host_crashed;

struct Coverage {
    std::array<uint64_t, static_cast<size_t>(Sometimes::count)> counts{};

    void reached(Sometimes what) { ++counts[static_cast<size_t>(what)]; }
    void add(const Coverage& other) {
        for (size_t index = 0; index < counts.size(); ++index) counts[index] += other.counts[index];
    }
    // True if all were reached.
    bool print(bool with_faults) const {
        bool all = true;
        for (size_t index = 0; index < counts.size(); ++index) {
            if (!with_faults && index >= static_cast<size_t>(first_of_faults)) break;
            std::printf("  sometimes: %-34s %llu\n", sometimes_names[index],
                        static_cast<unsigned long long>(counts[index]));
            all = all && counts[index] > 0;
        }
        return all;
    }
};

}  // namespace tarn::sim
