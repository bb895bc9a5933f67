// The shell around Handshake: its bytes to and from the socket, its questions to the cluster's volumes.
#include <fmt/format.h>
#include <sys/socket.h>

#include "frontends/nbd/connection.hpp"
#include "utils/alarm.hpp"
#include "utils/log.hpp"

namespace tarn::nbd {

namespace {

// An option's payload may come in any pieces; this bounds what is buffered beyond one option.
constexpr size_t negotiation_receive_size = 4096;

}  // namespace

Task<Result<>> Connection::negotiate() {
    Alarm alarm(workspace_->loop, handshake_time_max, [this] { break_off(); });
    Handshake handshake;
    const Result<> result = co_await converse(handshake);
    co_await alarm.end();
    if (broken_) co_return fail(Errc::protocol, 0, "nbd.handshake: it took too long");
    co_return result;
}

Task<Result<>> Connection::converse(Handshake& handshake) {
    std::vector<std::byte> received(negotiation_receive_size);
    for (;;) {
        if (handshake.state() == Handshake::State::asking) {
            co_await answer(handshake);
            continue;
        }
        CO_TRY_VOID(co_await send_all(handshake.output()));
        handshake.output().clear();
        if (handshake.state() == Handshake::State::transmission) break;
        if (handshake.state() == Handshake::State::closed)
            co_return fail(handshake.reason().empty() ? Errc::closed : Errc::protocol, 0, handshake.reason());
        CO_TRY(const size_t count, co_await workspace_->loop.receive(socket_.get(), received));
        if (count == 0) co_return fail(Errc::closed, 0, "nbd.handshake");
        handshake.receive(std::span<const std::byte>(received).first(count));
    }
    export_ = handshake.exported();
    carry_ = handshake.take_rest();
    settle_carry();
    co_return Result<>{};
}

Task<Result<>> Connection::send_all(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
        CO_TRY(const size_t count, co_await workspace_->loop.send(socket_.get(), bytes));
        bytes = bytes.subspan(count);
    }
    co_return Result<>{};
}

Task<> Connection::answer(Handshake& handshake) {
    if (handshake.question() == Handshake::Question::list) co_return co_await answer_names(handshake);
    const Result<VolumeEntry> entry = co_await find(handshake.name());
    if (!entry) co_return co_await refuse(handshake, entry.error());
    if (handshake.question() == Handshake::Question::find)
        co_return handshake.answer_found(entry->name, entry->attributes.size_bytes);

    const Result<std::shared_ptr<Volume>> opened = co_await open(*entry);
    if (!opened) co_return co_await refuse(handshake, opened.error());
    const Result<uint64_t> size_bytes = co_await (*opened)->size();
    if (!size_bytes) {
        leave();
        co_return co_await refuse(handshake, size_bytes.error());
    }
    handshake.answer_found(entry->name, *size_bytes);
}

// As one more connection of its client. Of several that come together one is the first.
Task<Result<std::shared_ptr<Volume>>> Connection::open(const VolumeEntry& entry) {
    std::shared_ptr<VolumeSession> session = sessions_.find(client_, entry.id, Sessions::Clock::now());
    for (;;) {
        CO_TRY(std::shared_ptr<Volume> volume, co_await volumes_.open(entry.name, Access::write, session));
        session = sessions_.joined(client_, volume->id(), volume->session());
        if (session != volume->session()) continue;
        volume_ = volume;
        co_return volume;
    }
}

Task<> Connection::answer_names(Handshake& handshake) {
    const Result<std::vector<VolumeEntry>> entries = co_await volumes_.names();
    if (!entries) co_return co_await refuse(handshake, entries.error());
    std::vector<std::string> names;
    for (const VolumeEntry& entry : *entries) names.push_back(entry.name);
    handshake.answer_names(names);
}

// No name stands for the only volume there is.
Task<Result<VolumeEntry>> Connection::find(const std::string& name) {
    if (!name.empty()) co_return co_await volumes_.find(name);
    CO_TRY(const std::vector<VolumeEntry> entries, co_await volumes_.names());
    if (entries.size() != 1) co_return fail(Errc::not_found, 0, "nbd.handshake: no default export");
    co_return co_await volumes_.find(entries.front().name);
}

Task<> Connection::refuse(Handshake& handshake, Error error) {
    std::string text = "the export is not available";
    if (error.code == Errc::not_found || error.code == Errc::invalid) text = "there is no such export";
    if (error.code == Errc::unavailable) text = "the cluster cannot say: a host it needs is away";
    if (error.code == Errc::busy) {
        const Result<VolumeEntry> entry = co_await find(handshake.name());
        const std::string holder =
            entry && !entry->holder.empty() ? fmt::format("host {}", entry->holder) : "another host";
        text = fmt::format(
            "the volume is exclusive and held by {}: until nobody has it open there, no other host may read or write "
            "it",
            holder);
    }
    if (handshake.question() == Handshake::Question::open) {
        const bool is_explained = error.code == Errc::not_found || error.code == Errc::busy;
        log_refusal("refused", fmt::format("export \"{}\": {}{}", log::printable(handshake.name()), text,
                                           is_explained ? "" : " (" + log::describe(error) + ")"));
        was_refused_ = true;
    }
    handshake.answer_refused(error.code, text);
}

}  // namespace tarn::nbd
