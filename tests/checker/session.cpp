#include "tests/checker/session.hpp"

#include <fcntl.h>
#include <libnbd.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "utils/unique_fd.hpp"

namespace tarn::checker {

namespace {

class NbdSession final : public Session {
  public:
    static constexpr size_t connections = 2;

    // Null: not all of them can be opened.
    static std::unique_ptr<NbdSession> open(const std::string& where) {
        auto session = std::make_unique<NbdSession>();
        for (nbd_handle*& handle : session->handles_) {
            handle = nbd_create();
            if (!handle || nbd_connect_uri(handle, where.c_str()) != 0) return nullptr;
        }
        return session;
    }
    NbdSession() = default;
    // All connections of this process to an export are one client, for tarn: what was lost is told to it until the last
    // of them says that it disconnects.
    ~NbdSession() override {
        for (nbd_handle* const handle : handles_) {
            if (handle && nbd_aio_is_ready(handle) == 1) nbd_shutdown(handle, 0);
            if (handle) nbd_close(handle);
        }
    }
    NbdSession(const NbdSession&) = delete;

    bool read(uint64_t offset_bytes, std::span<std::byte> into) override {
        return nbd_pread(next(), into.data(), into.size(), offset_bytes, 0) == 0;
    }
    bool write(uint64_t offset_bytes, std::span<const std::byte> from) override {
        return nbd_pwrite(next(), from.data(), from.size(), offset_bytes, 0) == 0;
    }
    bool write_through(uint64_t offset_bytes, std::span<const std::byte> from) override {
        return nbd_pwrite(next(), from.data(), from.size(), offset_bytes, LIBNBD_CMD_FLAG_FUA) == 0;
    }
    bool zero(uint64_t offset_bytes, uint64_t size_bytes, Zeroing how) override {
        return (how == Zeroing::trim ? nbd_trim(next(), size_bytes, offset_bytes, 0)
                                     : nbd_zero(next(), size_bytes, offset_bytes, 0)) == 0;
    }
    bool flush() override { return nbd_flush(next(), 0) == 0; }
    bool was_refused() const override {
        if (nbd_get_errno() != EIO) return false;
        for (nbd_handle* const handle : handles_)
            if (nbd_aio_is_ready(handle) != 1) return false;
        return true;
    }
    size_t connection_count() const override { return connections; }

  private:
    nbd_handle* next() { return handles_[++turn_ % connections]; }

    std::array<nbd_handle*, connections> handles_{};
    size_t turn_ = 0;
};

class FileSession final : public Session {
  public:
    FileSession(UniqueFd fd, UniqueFd synchronous) : fd_(std::move(fd)), synchronous_(std::move(synchronous)) {}

    bool read(uint64_t offset_bytes, std::span<std::byte> into) override {
        return ::pread(fd_.get(), into.data(), into.size(), static_cast<off_t>(offset_bytes)) ==
               static_cast<ssize_t>(into.size());
    }
    bool write(uint64_t offset_bytes, std::span<const std::byte> from) override {
        return ::pwrite(fd_.get(), from.data(), from.size(), static_cast<off_t>(offset_bytes)) ==
               static_cast<ssize_t>(from.size());
    }
    // Through another open file, which is another session.
    bool write_through(uint64_t offset_bytes, std::span<const std::byte> from) override {
        return ::pwrite(synchronous_.get(), from.data(), from.size(), static_cast<off_t>(offset_bytes)) ==
               static_cast<ssize_t>(from.size());
    }
    bool zero(uint64_t offset_bytes, uint64_t size_bytes, Zeroing how) override {
        const int mode = FALLOC_FL_KEEP_SIZE | (how == Zeroing::trim ? FALLOC_FL_PUNCH_HOLE : FALLOC_FL_ZERO_RANGE);
        return ::fallocate(fd_.get(), mode, static_cast<off_t>(offset_bytes), static_cast<off_t>(size_bytes)) == 0;
    }
    bool flush() override { return ::fsync(fd_.get()) == 0; }
    bool was_refused() const override { return errno == EIO; }
    size_t connection_count() const override { return 1; }

  private:
    UniqueFd fd_;
    UniqueFd synchronous_;
};

}  // namespace

std::unique_ptr<Session> open_session(const std::string& where) {
    if (where.starts_with("nbd")) return NbdSession::open(where);
    UniqueFd fd(::open(where.c_str(), O_RDWR | O_CLOEXEC));
    UniqueFd synchronous(::open(where.c_str(), O_RDWR | O_DSYNC | O_CLOEXEC));
    return fd && synchronous ? std::make_unique<FileSession>(std::move(fd), std::move(synchronous)) : nullptr;
}

}  // namespace tarn::checker
