// AttachTable: /etc/tarn/attachtab, the volumes that are kept attached to this host as block devices, and how; see
// attachtab(5). tarn attach --from reads a line of it, and the systemd generator all of them.
//
// A line that is wrong takes nothing from the others: it is a mistake with its number, and with its volume where that
// can be told, so that whoever attaches this volume hears of it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "daemon/control/control.hpp"

namespace tarn {

inline constexpr const char* attach_table_path = "/etc/tarn/attachtab";

struct AttachTable {
    struct Line {
        AttachOptions options;  // with the volume
        bool at_boot = true;    // no: noauto
        unsigned number = 0;    // from 1
    };
    struct Mistake {
        unsigned number = 0;
        std::string volume;  // empty: not known
        std::string reason;
    };
    std::vector<Line> lines;
    std::vector<Mistake> mistakes;

    static AttachTable parse(std::string_view text);
};

}  // namespace tarn
