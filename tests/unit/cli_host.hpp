// CliHost: tarn as a user and a script call it, against a daemon on a real socket.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "daemon/cli/cli.hpp"
#include "daemon/control/control_server.hpp"
#include "tests/support/fake_daemon.hpp"
#include "tests/support/scratch_directory.hpp"

namespace tarn {

class CliHost : public testing::Test {
  protected:
    CliHost() {
        path_ = directory_ / "control.sock";
        loop_ = std::move(*Loop::create());
        Result<std::unique_ptr<ControlServer>> server = ControlServer::create(*loop_, path_, api_);
        EXPECT_TRUE(server);
        server_ = std::move(*server);
        loop_->spawn(serve(*loop_, *server_));
        thread_ = std::thread([this] { loop_->run(); });
    }
    ~CliHost() override {
        struct Stop final : Loop::Posted {
            explicit Stop(ControlServer& stopped) : server(stopped) {}
            void run() override { server.stop(); }
            ControlServer& server;
        } stop(*server_);
        loop_->post(stop);
        thread_.join();
        server_.reset();
    }

    Exit run(const std::vector<std::string>& words) { return run_at(path_, words); }
    Exit run_at(const std::string& socket, const std::vector<std::string>& words, Terminals terminals = {}) {
        std::vector<const char*> all = {"tarn"};
        for (const std::string& word : words) all.push_back(word.c_str());
        all.push_back("--control");
        all.push_back(socket.c_str());
        std::ostringstream out;
        std::ostringstream err;
        const Exit exit = run_cli(all, out, err, terminals);
        out_ = out.str();
        err_ = err.str();
        return exit;
    }

    static Task<> serve(Loop& loop, ControlServer& server) {
        const Result<> served = co_await server.serve();
        EXPECT_TRUE(served);
        loop.stop();
    }

    ScratchDirectory directory_;
    std::string path_;
    FakeDaemon daemon_;
    ControlApi api_{daemon_, daemon_, false};
    std::unique_ptr<Loop> loop_;
    std::unique_ptr<ControlServer> server_;
    std::thread thread_;
    std::string out_;
    std::string err_;
};

}  // namespace tarn
