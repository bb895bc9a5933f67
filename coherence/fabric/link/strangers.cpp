#include "coherence/fabric/link/strangers.hpp"

#include <algorithm>
#include <utility>

namespace tarn {

Strangers::Visit::Visit(Strangers& strangers, Connection& connection)
    : strangers_(strangers), connection_(connection), origin_(connection.origin()) {
    strangers_.make_room(*this);
    place_ = strangers_.visits_.insert(strangers_.visits_.end(), this);
}

void Strangers::Visit::leave() {
    if (std::exchange(has_place_, false)) strangers_.visits_.erase(place_);
}

void Strangers::make_room(const Visit& newcomer) {
    const auto is_neighbour = [&](const Visit* visit) { return visit->origin_ == newcomer.origin_; };
    Visit* leaves = nullptr;
    if (static_cast<size_t>(std::ranges::count_if(visits_, is_neighbour)) >= count_of_origin_max)
        leaves = *std::ranges::find_if(visits_, is_neighbour);
    else if (visits_.size() >= count_max)
        leaves = visits_.front();
    if (!leaves) return;
    leaves->leave();
    leaves->connection_.shut_down();
}

}  // namespace tarn
