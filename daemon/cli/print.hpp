// What people read: the daemon's answers as lines and tables. What others chose is made safe to show.
#pragma once

#include <ostream>
#include <string>

#include "daemon/cli/client.hpp"

namespace tarn {

void print_certificates(std::ostream& out, const Json& made);
void print_init(std::ostream& out, const Json& made);
// "created vol1, 10 GiB, exclusive" and the note.
void print_made(std::ostream& out, const char* what, const Json& volumes, const std::string& note);
// And who has a volume open that became smaller, and whose devices may not have its new size.
void print_resized(std::ostream& out, const Json& volumes, const std::string& note);
// One line for each member of the list under the key: what was done to it.
void print_done(std::ostream& out, const char* what, const Json& all, const char* key);
void print_forgotten(std::ostream& out, const Json& forgotten);
void print_list(std::ostream& out, const Json& list);
// One name per line; escaped only for a terminal.
void print_names(std::ostream& out, const Json& all, const char* key, const char* name_key, bool terminal);
void print_volumes(std::ostream& out, const Json& volumes);
// Of some volumes or of all: one URI per line.
void print_exports(std::ostream& out, const Json& exports);
void print_attached(std::ostream& out, const Json& attached);
void print_attachments(std::ostream& out, const Json& attached);
void print_mounts(std::ostream& out, const char* what, const Json& mounts);
void print_findings(std::ostream& out, const Json& findings);
void print_verified(std::ostream& out, const Json& status);
void print_status(std::ostream& out, const Json& status);
// The links to the other hosts in a status.
void print_links(std::ostream& out, const Json& status);
// The shards in a status.
void print_shards(std::ostream& out, const Json& status);

}  // namespace tarn
