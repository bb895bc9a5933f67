// within(): the result of a task, or an error when it takes too long. The task goes on alone, to no effect for us.
//
// So it must refer to nothing that ends before its loop does, nor what its own references refer to.
#pragma once

#include <cerrno>
#include <chrono>
#include <memory>
#include <optional>

#include "utils/loop.hpp"
#include "utils/result.hpp"
#include "utils/task.hpp"

namespace tarn {

namespace detail {

template <class T>
struct Within {
    explicit Within(Loop& loop) : patience(loop) {}
    Timer patience;
    std::optional<Result<T>> result;

    static Task<> run(Task<Result<T>> task, std::shared_ptr<Within> self) {
        self->result = co_await std::move(task);
        self->patience.cancel();
    }
};

}  // namespace detail

template <class T>
Task<Result<T>> within(std::chrono::milliseconds limit, Task<Result<T>> task) {
    Loop& loop = *Loop::current();
    const auto state = std::make_shared<detail::Within<T>>(loop);
    loop.spawn(detail::Within<T>::run(std::move(task), state));
    if (!state->result) (void)co_await state->patience.sleep(limit);
    if (!state->result) co_return fail(Errc::unavailable, EIO, "a host did not answer within fail-after");
    co_return std::move(*state->result);
}

}  // namespace tarn
