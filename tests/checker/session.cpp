#include "tests/checker/session.hpp"

#include <fcntl.h>
#include <libnbd.h>
#include <unistd.h>

#include "utils/unique_fd.hpp"

namespace tarn::checker {

namespace {

class NbdSession final : public Session {
  public:
    explicit NbdSession(nbd_handle* handle) : handle_(handle) {}
    // All connections of this process to an export are one client, for tarn: what was lost is told to it until the last
    // of them says that it disconnects.
    ~NbdSession() override {
        nbd_shutdown(handle_, 0);
        nbd_close(handle_);
    }
    NbdSession(const NbdSession&) = delete;

    bool read(uint64_t offset_bytes, std::span<std::byte> into) override {
        return nbd_pread(handle_, into.data(), into.size(), offset_bytes, 0) == 0;
    }
    bool write(uint64_t offset_bytes, std::span<const std::byte> from) override {
        return nbd_pwrite(handle_, from.data(), from.size(), offset_bytes, 0) == 0;
    }
    bool flush() override { return nbd_flush(handle_, 0) == 0; }

  private:
    nbd_handle* handle_;
};

class FileSession final : public Session {
  public:
    explicit FileSession(UniqueFd fd) : fd_(std::move(fd)) {}

    bool read(uint64_t offset_bytes, std::span<std::byte> into) override {
        return ::pread(fd_.get(), into.data(), into.size(), static_cast<off_t>(offset_bytes)) ==
               static_cast<ssize_t>(into.size());
    }
    bool write(uint64_t offset_bytes, std::span<const std::byte> from) override {
        return ::pwrite(fd_.get(), from.data(), from.size(), static_cast<off_t>(offset_bytes)) ==
               static_cast<ssize_t>(from.size());
    }
    bool flush() override { return ::fsync(fd_.get()) == 0; }

  private:
    UniqueFd fd_;
};

}  // namespace

std::unique_ptr<Session> open_session(const std::string& where) {
    if (!where.starts_with("nbd")) {
        UniqueFd fd(::open(where.c_str(), O_RDWR | O_CLOEXEC));
        return fd ? std::make_unique<FileSession>(std::move(fd)) : nullptr;
    }
    nbd_handle* const handle = nbd_create();
    if (handle && nbd_connect_uri(handle, where.c_str()) == 0) return std::make_unique<NbdSession>(handle);
    if (handle) nbd_close(handle);
    return nullptr;
}

}  // namespace tarn::checker
