// What a test does as another user of this machine, on a thread of its own: whoever it meets sees that user.
#pragma once

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <functional>
#include <thread>

namespace tarn {

inline constexpr uid_t other_user = 65534;

inline bool can_be_another_user() {
    return ::geteuid() == 0;
}

// The call itself: the library's function would change all threads.
inline void as_another_user(const std::function<void()>& act) {
    std::thread other([&] {
        ASSERT_EQ(::syscall(SYS_setresuid, -1, other_user, -1), 0);
        act();
    });
    other.join();
}

}  // namespace tarn
