// ControlApi: what each request to the control socket does, and the JSON it answers with.
//
//   GET    /v1/status                               GET    /v1/mounts
//   GET    /v1/volumes       POST {name, size_bytes, shared, mode,    POST   /v1/mounts  {path, read_only}
//                               fail_after_ms}
//   GET    /v1/volumes/NAME  PATCH {size_bytes, shrink}  DELETE       DELETE /v1/mounts  {path, force}
//   POST   /v1/volumes/NAME/flush                   GET    /v1/exports
//   GET    /v1/verify        POST {volume, rate_bytes}   DELETE
//   POST   /v1/hosts/NAME/forget  {it_is_dead}
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
    Task<HttpReply> status();
    Task<HttpReply> list();
    Task<HttpReply> create(const HttpRequest& request);
    Task<HttpReply> show(std::string name);
    Task<HttpReply> resize(std::string name, const HttpRequest& request);
    Task<HttpReply> remove(std::string name, const HttpRequest& request);
    Task<HttpReply> flush(std::string name);
    Task<HttpReply> forget_host(std::string name, const HttpRequest& request);
    Task<HttpReply> exports();
    Task<HttpReply> handle_verify(const HttpRequest& request);
    HttpReply mounts();
    Task<HttpReply> mount(const HttpRequest& request, Caller caller);
    Task<HttpReply> unmount(const HttpRequest& request);
    Task<HttpReply> handle_volume(const HttpRequest& request);
    Task<HttpReply> handle_mounts(const HttpRequest& request, Caller caller);

    Volumes& volumes_;
    Control& control_;
    bool shared_by_default_;
};

}  // namespace tarn
