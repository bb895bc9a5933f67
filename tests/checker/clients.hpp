// The clients of one round: threads that read, write and flush registers at random, and note what they saw.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/checker/recorder.hpp"
#include "tests/checker/session.hpp"

namespace tarn::checker {

// One host under test, and where its clients find the volume.
struct HostUnderTest {
    std::string name;
    std::vector<std::string> endpoints;
    bool up = true;
};

// The registers: some that everybody uses all the time, and all other pages of the volume.
class Registers {
  public:
    static constexpr size_t run_max = 4;  // pages of one request

    explicit Registers(uint64_t volume_size_bytes);
    // For one request: one page, or all or one of its sectors, or several pages in a row. They lie side by side.
    using Choice = std::vector<Register>;
    Choice pick(std::mt19937_64& random, bool for_reading) const;
    bool is_hot(const Register& where) const;

  private:
    Choice pick_run(std::mt19937_64& random) const;

    uint64_t page_count_;
    std::vector<uint64_t> hot_runs_;  // the first page of each
    std::vector<uint64_t> hot_pages_;
    size_t whole_count_;  // the first so many of them are one register each, the rest one a sector
};

class Clients {
  public:
    Clients(std::vector<HostUnderTest> hosts, uint64_t volume_size_bytes, uint64_t seed);
    ~Clients();

    void start();
    // Ends the round. False: some operation does not end; say() tells which.
    bool stop(std::chrono::seconds timeout);
    // Reads every register that the round touched, hot ones on every host, as part of the round, by sessions that begin
    // now.
    bool read_all();
    // Each session flushes, which it may only if it has lost nothing; then it ends.
    void flush_and_close();
    // By a session that begins now: what was read is durable from then on.
    bool flush_once();
    std::string say();
    void close_sessions();

    void set_up(size_t host, bool up);
    const std::vector<HostUnderTest>& hosts() const { return hosts_; }
    Recorder& recorder() { return recorder_; }
    const Registers& registers() const { return registers_; }
    // What no history could explain, if anybody saw that.
    std::string torn();

  private:
    struct Client {
        unsigned id = 0;
        size_t host = 0;
        std::string endpoint;
        std::mt19937_64 random;
        std::unique_ptr<Session> session;
        unsigned session_number = 0;
        uint64_t written = 0;
        std::atomic<const char*> doing{nullptr};
    };

    void run(Client& client);
    bool has_session(Client& client);
    bool open(Client& client);
    void write(Client& client);
    void zero(Client& client);
    void record_writes(Client& client, const Registers::Choice& choice, Operation operation, bool done);
    void say_wrong(std::string what);
    bool read(Client& client, const Registers::Choice& choice);
    void flush(Client& client);

    std::vector<HostUnderTest> hosts_;
    Registers registers_;
    Recorder recorder_;
    std::vector<std::unique_ptr<Client>> clients_;
    std::vector<std::thread> threads_;
    std::mutex mutex_;
    std::condition_variable changed_;
    bool stopping_ = false;
    unsigned running_ = 0;
    std::string torn_;
};

}  // namespace tarn::checker
