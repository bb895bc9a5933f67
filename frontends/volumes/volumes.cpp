#include "frontends/volumes/volumes.hpp"

#include "utils/printable.hpp"

namespace tarn {

bool valid_volume_name(std::string_view name) {
    if (name.empty() || name.size() > volume_name_size_max) return false;
    for (size_t i = 0; i < name.size();) {
        const size_t size = utf8_size(name.substr(i));
        if (size == 0 || is_control(name.substr(i, size))) return false;
        i += size;
    }
    for (size_t start = 0;;) {
        const size_t slash = name.find('/', start);
        const std::string_view part = name.substr(start, slash - start);
        if (part.empty() || part == "." || part == "..") return false;
        if (slash == std::string_view::npos) return true;
        start = slash + 1;
    }
}

}  // namespace tarn
