#include "daemon/cli/lone_detach.hpp"

#include <fmt/format.h>

#include <chrono>
#include <thread>

#include "daemon/keeper/keeper.hpp"
#include "utils/log.hpp"

namespace tarn {

namespace {

constexpr std::chrono::seconds keeper_patience{2};
constexpr std::chrono::milliseconds looker_patience{500};
constexpr std::chrono::milliseconds between_looks{10};

std::unexpected<Failure> refuse_as(std::string code, const Error& error, std::string hint) {
    return std::unexpected(Failure{
        .exit = exit_of(error.code), .cause = log::describe(error), .hint = std::move(hint), .code = std::move(code)});
}

}  // namespace

Outcome<Json> detach_alone(NbdDriver& driver, const BlockDevices& devices, const std::string& control,
                           const std::string& name, bool force) {
    const std::optional<std::string> device = devices.device_of(name);
    if (!device)
        return refuse(Exit::not_found, "no volume or device of that name is attached here, and no daemon answers",
                      "tarn attached, or start tarnd");
    if (!force && devices.is_used(*device))
        return refuse(Exit::busy, "the device is in use, and no daemon answers",
                      "start tarnd, and its requests go on; --force ends it all the same, and they fail");
    const auto failed = [](const Error& error) {
        return error.code == Errc::unsupported ? refuse_as("unsupported", error, "modprobe nbd")
               : error.code == Errc::refused   ? refuse_as("refused", error, "sudo")
                                               : refuse_as("io", error, "");
    };
    // First: whose sockets are cut, and who is not ended then, has requests that wait for long.
    if (const Result<> there = driver.is_there(); !there) return failed(there.error());
    // A kernel that waits to send would not hear of it, and wait for ever. It does not without requests.
    const Keeper keeper(Keeper::socket_of(control), keeper_patience);
    if (const Result<> cut = keeper.cut(*device); !cut && cut.error().code == Errc::refused)
        return refuse_as("refused", cut.error(), "sudo");
    else if (!cut && cut.error().code != Errc::not_found && devices.is_busy(*device))
        return refuse_as("io", cut.error(), "kill -9 tarnd and tarn-keeper, of which neither answers, and try again");
    const Result<> done = driver.disconnect(*index_of(*device));
    if (!done && done.error().code != Errc::not_found) return failed(done.error());
    // Who looked whether it is in use (is_claimed) may wait in vain to open it, and has it until its end comes to him.
    for (const auto end = std::chrono::steady_clock::now() + looker_patience;
         !force && devices.is_connected(*device) && std::chrono::steady_clock::now() < end;)
        std::this_thread::sleep_for(between_looks);
    return Json{{"name", name}};
}

}  // namespace tarn
