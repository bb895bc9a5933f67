// What people read: the daemon's answers as lines and tables.
#pragma once

#include <ostream>
#include <string>

#include "daemon/cli/client.hpp"

namespace tarn {

void print_init(std::ostream& out, const Json& made);
// "created vol1, 10 GiB, exclusive" and the note.
void print_made(std::ostream& out, const char* what, const Json& volume, const std::string& note);
void print_done(std::ostream& out, const char* what, const Json& named);
void print_forgotten(std::ostream& out, const Json& forgotten);
void print_list(std::ostream& out, const Json& list);
void print_volume(std::ostream& out, const Json& volume);
// Of one volume or of all: one URI per line.
void print_exports(std::ostream& out, const Json& exports);
void print_mounts(std::ostream& out, const Json& mounts);
void print_verified(std::ostream& out, const Json& status);
void print_status(std::ostream& out, const Json& status);

}  // namespace tarn
