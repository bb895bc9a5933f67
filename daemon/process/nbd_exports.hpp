// What the configuration says of a volume's NBD export: where clients find it, and who may use it how. For tarn export
// and tarn show, and for the log at the start.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "daemon/configuration/configuration.hpp"
#include "daemon/control/control.hpp"
#include "frontends/nbd/tls_credentials.hpp"

namespace tarn {

// The host name or address under which clients on other machines find the server of nbd.tcp. machine_name: stands for
// the address of one that listens on all of this machine's, and has no peers that say how it is called.
std::string nbd_host_for_clients(const Configuration& configuration, const std::string& machine_name);

// machine_name: as above. Only URIs that can work: none over TCP without TLS where only clients within TLS may use the
// volume, and none over TCP where nobody may.
Export nbd_export_of(const Configuration& configuration, const std::string& machine_name, const std::string& volume);

// Each name in nbd.read_only and nbd.access that no volume has, with its key: "nbd.access: db". A misspelt name there
// protects nothing.
std::vector<std::string> nbd_names_of_no_volume(const Configuration& configuration,
                                                std::span<const std::string> volumes);

// Each identity in nbd.access that no client can prove, with the reason: whoever was meant does not find the volume.
std::vector<std::string> nbd_identities_of_nobody(const Configuration& configuration,
                                                  const nbd::TlsCredentials& credentials);

}  // namespace tarn
