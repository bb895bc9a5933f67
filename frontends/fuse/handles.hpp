// Handles: the files and directories that the kernel has open, by address. At the end of a mount the kernel does not
// close them, and an open volume stays held: close_all() closes them. Thread-safe.
#pragma once

#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>

namespace tarn::fuse {

template <class T>
class Handles {
  public:
    T* add(T value) {
        auto owned = std::make_unique<T>(std::move(value));
        T* const handle = owned.get();
        const std::lock_guard lock(mutex_);
        open_.emplace(handle, std::move(owned));
        return handle;
    }
    void remove(T* handle) {
        const std::lock_guard lock(mutex_);
        open_.erase(handle);
    }
    template <class Visitor>
    void for_each(Visitor&& visit) {
        const std::lock_guard lock(mutex_);
        for (const auto& [handle, owned] : open_) visit(*handle);
    }
    // When no operation is in flight any more.
    void close_all() {
        const std::lock_guard lock(mutex_);
        open_.clear();
    }

  private:
    std::mutex mutex_;
    std::unordered_map<T*, std::unique_ptr<T>> open_;
};

}  // namespace tarn::fuse
