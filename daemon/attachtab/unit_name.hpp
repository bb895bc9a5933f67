// How systemd spells in the name of a unit what a volume or a directory is called; see systemd-escape(1).
#pragma once

#include <string>
#include <string_view>

namespace tarn {

// "tarn-attach@my\x2ddb.service" of my-db. May be longer than unit_name_size_max.
std::string attach_unit_of(std::string_view volume);
// "srv-db.mount" of /srv/db. directory: absolute and normal.
std::string mount_unit_of(std::string_view directory);

inline constexpr size_t unit_name_size_max = 255;

}  // namespace tarn
