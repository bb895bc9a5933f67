// The shell around Handshake: its bytes to and from the socket, its questions to the cluster's volumes.
#include <fmt/format.h>
#include <sys/socket.h>

#include <cerrno>

#include "frontends/nbd/connection.hpp"
#include "utils/alarm.hpp"
#include "utils/log.hpp"

namespace tarn::nbd {

namespace {

// An option's payload may come in any pieces; this bounds what is buffered beyond one option.
constexpr size_t negotiation_receive_size = 4096;
// For the log alone: the client is told that there is no such export.
constexpr StaticText not_listed = "nbd.access does not list this client";

}  // namespace

Task<Result<>> Connection::negotiate() {
    co_await CarryInterrupt(client_left_);
    Alarm alarm(workspace_->loop, workspace_->settings.handshake_time_max, [this] { break_off(); });
    visit_.emplace(workspace_->newcomers, stream_.socket());
    Handshake handshake(tls_offer());
    const Result<> result = co_await converse(handshake);
    co_await alarm.end();
    if (stopped_) co_return fail(Errc::closed, 0, "nbd.handshake");
    if (!visit_->has_place())
        co_return fail(Errc::protocol, 0, "nbd.handshake: newer connections took its place (nbd.handshakes_max)");
    if (broken_) co_return fail(Errc::protocol, 0, "nbd.handshake: it took too long (nbd.handshake_seconds)");
    if (!result && handshake.lacks_tls())
        co_return fail(Errc::protocol, 0, "nbd.handshake: it did not begin TLS, which is required (nbd.tls)");
    if (result && !visit_->end()) co_return fail(Errc::closed, 0, "nbd.handshake");
    co_return result;
}

Task<Result<>> Connection::converse(Handshake& handshake) {
    std::vector<std::byte> received(negotiation_receive_size);
    for (;;) {
        // Also before the next question: a client that asks much and reads nothing gets no further than its socket.
        CO_TRY_VOID(co_await stream_.send_all(workspace_->loop, handshake.output(), workspace_->tls));
        handshake.output().clear();
        if (is_given_up()) co_return fail(Errc::closed, 0, "nbd.handshake");
        if (handshake.state() == Handshake::State::asking) {
            co_await answer(handshake);
            co_await Yield(workspace_->loop);  // others get their turn between two questions
            continue;
        }
        if (handshake.state() == Handshake::State::transmission) break;
        if (handshake.state() == Handshake::State::securing) {
            CO_TRY_VOID(co_await begin_tls());
            handshake.secured();
            continue;
        }
        if (handshake.state() == Handshake::State::closed)
            co_return fail(handshake.reason().empty() ? Errc::closed : Errc::protocol, 0, handshake.reason());
        CO_TRY(const size_t count, co_await stream_.receive(workspace_->loop, received, workspace_->tls));
        if (count == 0) co_return fail(Errc::closed, 0, "nbd.handshake");
        handshake.receive(std::span<const std::byte>(received).first(count));
    }
    export_ = handshake.exported();
    carry_ = handshake.take_rest();
    settle_carry();
    co_return Result<>{};
}

Handshake::Tls Connection::tls_offer() const {
    if (!admission_ || admission_->tls == TlsMode::off) return Handshake::Tls::none;
    if (admission_->tls == TlsMode::require) return Handshake::Tls::required;
    return admission_->access.empty() ? Handshake::Tls::offered : Handshake::Tls::for_some;
}

// From then on the client is who it has proved to be, wherever it comes from.
Task<Result<>> Connection::begin_tls() {
    const Result<> begun = co_await stream_.begin_tls(workspace_->loop, admission_->credentials, workspace_->tls,
                                                      [this] { return is_given_up(); });
    if (!begun) {
        if (has_left(begun.error()) && !is_given_up())
            co_return fail(
                Errc::protocol, 0,
                "nbd.tls: the client left within the handshake; it may not trust this host's certificate, if "
                "that has one, or have no key that is known here");
        if (begun.error().code == Errc::refused) {
            log_refusal("refused", fmt::format("TLS: {}", stream_.trouble()));
            was_refused_ = true;
        }
        co_return begun;
    }
    const std::vector<std::string>& identities = stream_.tls().identities();
    if (!identities.empty()) client_.identity = identities.front();
    client_.text += identities.empty() ? ", within TLS" : fmt::format(", {}", log::printable(identities.front()));
    co_return Result<>{};
}

Task<> Connection::answer(Handshake& handshake) {
    if (handshake.question() == Handshake::Question::list) co_return co_await answer_list(handshake);
    const Result<VolumeEntry> entry = co_await find(handshake.name());
    if (!entry) co_return co_await refuse(handshake, entry.error());
    if (handshake.question() == Handshake::Question::find)
        co_return handshake.answer_found(describe(*entry, entry->attributes.size_bytes));

    const Result<std::shared_ptr<Volume>> opened = co_await open(*entry);
    if (!opened) co_return co_await refuse(handshake, opened.error());
    const Result<uint64_t> size_bytes = co_await (*opened)->size();
    if (!size_bytes) {
        leave();
        co_return co_await refuse(handshake, size_bytes.error());
    }
    handshake.answer_found(describe(*entry, *size_bytes));
}

// Made of what every host knows: the catalog has no room for a text of the volume's own.
ExportEntry Connection::describe(const VolumeEntry& entry, uint64_t size_bytes) const {
    const Settings& settings = workspace_->settings;
    const bool read_only = settings.read_only.contains(entry.name);
    std::string text =
        fmt::format("tarn volume, {}, {} KiB pages", entry.shared ? "shared" : "exclusive", page_size / 1024);
    if (read_only) text += ", read-only";
    if (!settings.host.empty()) text += ", on host " + settings.host;
    return {.name = entry.name, .description = std::move(text), .size_bytes = size_bytes, .read_only = read_only};
}

// As one more connection of its client. Of several that come together one is the first. Who may only read holds an
// exclusive volume all the same: it is open on one host at a time.
Task<Result<std::shared_ptr<Volume>>> Connection::open(const VolumeEntry& entry) {
    const auto now = Sessions::Clock::now();
    std::shared_ptr<VolumeSession> session = sessions_.find(client_, entry.id, now);
    for (;;) {
        std::shared_ptr<SessionRecord> record;
        if (!session) record = sessions_.record_of(client_, entry.id, now);
        Result<std::shared_ptr<Volume>> opened =
            co_await volumes_.open(entry.name, Access::write, session, std::move(record));
        // The record is for the volume that had this name, not for one that was made since.
        if (opened && (*opened)->id() != entry.id) opened = fail(Errc::not_found, 0, "nbd.open: it was just deleted");
        if (!opened && !session) sessions_.give_up(client_, entry.id);
        CO_TRY(std::shared_ptr<Volume> volume, std::move(opened));
        session = sessions_.joined(client_, volume->id(), volume->session(), stream_.socket());
        if (session != volume->session()) continue;
        volume_ = volume;
        co_return volume;
    }
}

Task<> Connection::answer_list(Handshake& handshake) {
    const Result<std::vector<VolumeEntry>> entries = co_await visible();
    if (!entries) co_return co_await refuse(handshake, entries.error());
    std::vector<ExportEntry> described;
    for (const VolumeEntry& entry : *entries) described.push_back(describe(entry, 0));
    handshake.answer_list(described);
}

bool Connection::may_see(const std::string& volume) const {
    if (!admission_) return true;
    const auto identities = stream_.is_tls() ? std::span(stream_.tls().identities()) : std::span<const std::string>();
    return admission_->access.allows(volume, identities);
}

Task<Result<std::vector<VolumeEntry>>> Connection::visible() {
    CO_TRY(std::vector<VolumeEntry> entries, co_await volumes_.names());
    std::erase_if(entries, [this](const VolumeEntry& entry) { return !may_see(entry.name); });
    co_return entries;
}

// No name stands for the only volume there is. In place of a volume that the client may not see one is looked for that
// nobody has: neither the answer nor the time that it takes depends on whether the volume is there.
Task<Result<VolumeEntry>> Connection::find(const std::string& name) {
    if (!name.empty()) {
        const bool sees = may_see(name);
        const Result<VolumeEntry> entry = co_await volumes_.find(sees ? name : std::string());
        if (!sees && (entry || entry.error().code == Errc::not_found)) co_return fail(Errc::not_found, 0, not_listed);
        co_return entry;
    }
    CO_TRY(const std::vector<VolumeEntry> entries, co_await visible());
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
        const bool is_hidden = std::string_view(error.where) == std::string_view(not_listed);
        const bool is_explained = (error.code == Errc::not_found && !is_hidden) || error.code == Errc::busy;
        log_refusal("refused", fmt::format("export \"{}\": {}{}", log::printable(handshake.name()), text,
                                           is_explained ? "" : " (" + log::describe(error) + ")"));
        was_refused_ = true;
    }
    handshake.answer_refused(error.code, text);
}

}  // namespace tarn::nbd
