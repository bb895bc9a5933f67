// tarn tls init: a certificate authority, and certificates of hosts and of a client, for those who have none.
//
// GnuTLS's certtool makes them, with its defaults. All or nothing: the directory appears when everything is in it.
#pragma once

#include <string>
#include <vector>

#include "daemon/cli/failure.hpp"

namespace tarn {

struct TlsInitOptions {
    std::string directory;
    std::vector<std::string> hosts;  // as clients call them: names or addresses; empty: this host's name
};

// What was made, and in "next" the lines that tell how to go on.
Outcome<Json> make_certificates(const TlsInitOptions& options);

}  // namespace tarn
