#include "coherence/protocol/admission.hpp"

#include "coherence/protocol/page_version.hpp"

namespace tarn::protocol {

namespace {

bool is_order(MessageKind kind) {
    return kind == MessageKind::move || kind == MessageKind::move_shared || kind == MessageKind::copy ||
           kind == MessageKind::drop;
}

}  // namespace

Result<> admit(const Message& message, const Link& link, HostId home, uint64_t page_count) {
    if (message.from != link.peer) return fail(Errc::protocol, 0, "message.from: speaks for another host");
    if (message.incarnation != link.process.incarnation)
        return fail(Errc::refused, 0, "message.incarnation: not this link's");
    if (message.view_epoch != link.view_epoch) return fail(Errc::refused, 0, "message.view_epoch: another view");
    if (message.map_epoch != link.map_epoch && message.map_epoch != 0)
        return fail(Errc::refused, 0, "message.map_epoch: another range map");
    if (message.host != no_host && !contains(link.hosts, message.host))
        return fail(Errc::protocol, 0, "message.host: no host of this cluster");
    if (page_count == no_volume) return fail(Errc::protocol, 0, "message.page: no such volume");
    if (page_count != any_page && message.page.number() + message.run >= page_count)
        return fail(Errc::protocol, 0, "message.page: beyond the volume");
    if (is_about_flush(message.kind)) return {};
    if (is_for_home(message.kind) && home != link.self)
        return fail(Errc::protocol, 0, "message.page: another host is its home");
    if (is_from_home(message.kind)) {
        if (home != link.peer) return fail(Errc::protocol, 0, "message.page: the sender is not its home");
        // A home counts its tenures from its epoch on.
        if (message.tenure >= first_tenure_of(link.process.epoch + 1))
            return fail(Errc::protocol, 0, "message.tenure: of a home to come");
    }
    if (message.kind == MessageKind::grant && (message.hosts & ~link.hosts) != 0)
        return fail(Errc::protocol, 0, "message.hosts: no hosts of this cluster");
    if (is_order(message.kind) && message.host == link.self)
        return fail(Errc::protocol, 0, "message.host: an order to serve oneself");
    return {};
}

}  // namespace tarn::protocol
