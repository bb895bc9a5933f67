// PlayedKeeper: keeps as tarn-keeper does, but for what a test says.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "daemon/keeper/keeper.hpp"
#include "utils/unix_socket.hpp"

namespace tarn {

class PlayedKeeper {
  public:
    // hangs_up: without an answer. denies: says that it does not have it. begins: another one, which has nothing yet.
    enum class Does { as_a_keeper, hangs_up, denies, begins };
    using Before = std::function<Does(const keeper::Said& said, int client)>;

    PlayedKeeper(std::string path, Before before)
        : path_(std::move(path)),
          before_(std::move(before)),
          listening_(std::move(*listen_unix(path_, 0600))),
          thread_([this] { answer_all(); }) {}
    ~PlayedKeeper() {
        ::shutdown(listening_.get(), SHUT_RDWR);
        thread_.join();
    }
    std::vector<std::string> names() {
        const std::lock_guard guard(lock_);
        std::vector<std::string> names;
        for (const auto& [name, fd] : kept_) names.push_back(name);
        return names;
    }
    int descriptor(const std::string& name) {
        const std::lock_guard guard(lock_);
        return kept_.at(name).get();
    }
    // It is watched, and seems to end.
    void hang_up_on_watcher() {
        const std::lock_guard guard(lock_);
        watcher_ = {};
    }
    // As of somebody who ends a device there.
    void cut(const std::string& name) {
        const std::lock_guard guard(lock_);
        EXPECT_TRUE(keeper::say(watcher_.get(), keeper::Word::cut, name));
    }
    bool is_watched() {
        const std::lock_guard guard(lock_);
        return static_cast<bool>(watcher_);
    }

  private:
    void answer_all() {
        for (;;) {
            UniqueFd client(::accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC));
            if (!client) return;
            if (Result<keeper::Said> said = keeper::hear(client.get())) answer(std::move(client), *said);
        }
    }
    void answer(UniqueFd client, keeper::Said& said) {
        const Does does = before_(said, client.get());
        if (does == Does::hangs_up) return;
        const std::lock_guard guard(lock_);
        if (does == Does::begins) kept_.clear();
        if (said.word == keeper::Word::take)
            for (const auto& [name, fd] : kept_) (void)keeper::say(client.get(), keeper::Word::done, name, fd.get());
        const bool has_not = said.word == keeper::Word::has && !kept_.contains(said.name);
        const bool says_none = does == Does::denies || has_not || said.word == keeper::Word::take;
        if (said.word == keeper::Word::keep) kept_.insert_or_assign(said.name, std::move(said.fd));
        if (said.word == keeper::Word::drop)
            std::erase_if(kept_, [&](const auto& each) {
                return each.first == said.name || each.first.starts_with(said.name + ".");
            });
        (void)keeper::say(client.get(), says_none ? keeper::Word::none : keeper::Word::done);
        if (said.word == keeper::Word::watch) watcher_ = std::move(client);
    }

    const std::string path_;
    const Before before_;
    const UniqueFd listening_;
    std::mutex lock_;
    std::map<std::string, UniqueFd> kept_;
    UniqueFd watcher_;
    std::thread thread_;
};

}  // namespace tarn
