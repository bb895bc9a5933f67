// ControlApi: what each request to the control socket does, and the JSON it answers with.
//
//   GET    /v1/status                               GET    /v1/mounts
//   GET    /v1/volumes       POST {name, size_bytes, shared, mode,    POST   /v1/mounts  {path, read_only}
//                               fail_after_ms}
//   GET    /v1/volumes/NAME  PATCH {size_bytes, shrink}  DELETE       DELETE /v1/mounts  {path, force}
//   POST   /v1/volumes/NAME/flush                   GET    /v1/exports
//   GET    /v1/verify        POST {volume, rate_bytes}   DELETE
//   POST   /v1/hosts/NAME/forget  {it_is_dead}      GET    /v1/attachments
//   POST   /v1/attachments  {volume, read_only, take_over, block_size_bytes, connections}
//   DELETE /v1/attachments  {volume, force}
//
// NAME is percent-encoded. An error is {"error": {"code", "message"}} with a fitting status; a body with an unknown,
// missing or repeated key, or a value of the wrong type, is refused and changes nothing.
#pragma once

#include <string>

#include "daemon/control/control.hpp"
#include "daemon/control/http_request.hpp"
#include "frontends/volumes/volumes.hpp"

namespace tarn {

struct HttpReply {
    HttpReply(int status, std::string body) : status(status), body(std::move(body)) {}
    // The error of what was asked for.
    HttpReply(const std::unexpected<Error>& failed);

    int status;
    std::string body;
};

class ControlApi {
  public:
    ControlApi(Volumes& volumes, Control& control, bool shared_by_default)
        : volumes_(volumes), control_(control), shared_by_default_(shared_by_default) {}

    // caller: who asks.
    Task<HttpReply> handle(HttpRequest request, Caller caller);
    static HttpReply refuse(int status, std::string_view reason);

  private:
    // One for each line above, but verify(), which has all of its path.
    using Answer = Task<HttpReply>(const HttpRequest& request, const Caller& caller);
    Answer status, list, create, show, resize, remove, flush, forget_host, exports, mounts, mount, unmount, attachments,
        attach, detach, verify;

    Volumes& volumes_;
    Control& control_;
    bool shared_by_default_;
};

}  // namespace tarn
