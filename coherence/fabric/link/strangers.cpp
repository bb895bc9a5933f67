#include "coherence/fabric/link/strangers.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace tarn {

namespace {

// Without the port. An IPv4 address is one of IPv6; of a whole network of IPv6, which one machine may have, the prefix.
in6_addr address_of(int fd) {
    constexpr size_t prefix_bytes = 8;
    sockaddr_storage storage{};
    socklen_t size = sizeof storage;
    in6_addr address{};
    if (::getpeername(fd, reinterpret_cast<sockaddr*>(&storage), &size) != 0) return address;
    if (storage.ss_family == AF_INET) {
        address.s6_addr[10] = address.s6_addr[11] = 0xff;
        std::memcpy(address.s6_addr + 12, &reinterpret_cast<const sockaddr_in&>(storage).sin_addr, 4);
    } else if (storage.ss_family == AF_INET6) {
        address = reinterpret_cast<const sockaddr_in6&>(storage).sin6_addr;
        if (!IN6_IS_ADDR_V4MAPPED(&address)) std::memset(address.s6_addr + prefix_bytes, 0, prefix_bytes);
    }
    return address;
}

bool same(const in6_addr& a, const in6_addr& b) {
    return std::memcmp(&a, &b, sizeof a) == 0;
}

}  // namespace

Strangers::Visit::Visit(Strangers& strangers, int fd) : strangers_(strangers), fd_(fd), address_(address_of(fd)) {
    strangers_.make_room(*this);
    place_ = strangers_.visits_.insert(strangers_.visits_.end(), this);
}

void Strangers::Visit::leave() {
    if (std::exchange(has_place_, false)) strangers_.visits_.erase(place_);
}

void Strangers::make_room(const Visit& newcomer) {
    const auto is_neighbour = [&](const Visit* visit) { return same(visit->address_, newcomer.address_); };
    Visit* leaves = nullptr;
    if (static_cast<size_t>(std::ranges::count_if(visits_, is_neighbour)) >= count_of_address_max)
        leaves = *std::ranges::find_if(visits_, is_neighbour);
    else if (visits_.size() >= count_max)
        leaves = visits_.front();
    if (!leaves) return;
    leaves->leave();
    ::shutdown(leaves->fd_, SHUT_RDWR);
}

}  // namespace tarn
