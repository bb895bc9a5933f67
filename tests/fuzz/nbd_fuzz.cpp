// Fuzzing a session of the NBD server: whatever a client sends, the connection ends when the client does, it says
// nothing but whole replies, each to a request that it was sent, and it holds no memory afterwards.
//
// The code is all that serves a client, over a socket pair; the volumes are in memory. The first byte of an input says
// what is agreed before the rest is sent, the second in which pieces the rest comes:
//   1  the export is open; else the rest begins with the client's flags
//   2  replies are structured     4  headers are extended     8  tarn:tier beside base:allocation
//   16 the export may only be read     32  every other access misses the hot path
#include <sys/socket.h>

#include <map>

#include "frontends/nbd/connection.hpp"
#include "tests/support/memory_volumes.hpp"
#include "tests/support/nbd_bytes.hpp"
#include "utils/assert.hpp"
#include "utils/log.hpp"

using namespace tarn;
using namespace tarn::nbd;

namespace {

constexpr uint64_t volume_size_bytes = 64 * 1024;
constexpr size_t greeting_size = 18;

struct Agreed {
    explicit Agreed(uint8_t bits)
        : is_open((bits & 1) != 0),
          structured((bits & 2) != 0),
          extended((bits & 4) != 0),
          tier((bits & 8) != 0),
          read_only((bits & 16) != 0),
          misses((bits & 32) != 0) {}
    bool is_open, structured, extended, tier, read_only, misses;

    const char* name() const { return read_only ? "read" : "disk"; }
    // What the client has sent for it, and how many final replies it got.
    Bytes options() const {
        Bytes bytes;
        if (!is_open) return bytes;
        bytes.client_flags();
        if (structured) bytes.option(Option::structured_reply);
        if (extended) bytes.option(Option::extended_headers);
        if (structured || extended) {
            Bytes contexts = Bytes().number(4u).text(name()).number(tier ? 2u : 1u).number(15u).text("base:allocation");
            if (tier) contexts.number(9u).text("tarn:tier");
            bytes.option(Option::set_meta_context, contexts);
        }
        return bytes.option(Option::go, info_payload(name()));
    }
    unsigned answer_count() const { return unsigned{structured} + extended + (structured || extended) + 1; }
};

class Session {
  public:
    Session() : loop_(std::move(*Loop::create())), workspace_(*loop_, share_, settings_, newcomers_) {
        log::set_level(log::Level::error);
        settings_.read_only = {"read"};
        for (const char* const name : {"disk", "read"}) volumes_.add(name, volume_size_bytes, false);
    }

    // Returns all that the server said.
    std::vector<std::byte> run(const Agreed& agreed, std::span<const std::byte> sent, size_t piece_size) {
        volumes_.faults.miss_every = agreed.misses ? 2 : 0;
        int pair[2];
        TARN_ASSERT(::socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
        client_ = UniqueFd(pair[0]);
        said_.clear();
        {
            Sessions sessions;
            Connection connection(workspace_, volumes_, sessions, UniqueFd(pair[1]), Client{.address = "fuzzer"});
            loop_->run_until_done(talk(connection, sent, piece_size));
        }
        TARN_ASSERT(share_.held_bytes() == 0);
        return std::move(said_);
    }

  private:
    Task<> talk(Connection& connection, std::span<const std::byte> sent, size_t piece_size) {
        Gate gate;
        gate.spawn(serve(connection));
        gate.spawn(send(sent, piece_size));
        gate.spawn(collect());
        co_await gate.close();
        const Result<std::shared_ptr<Volume>> disk = co_await volumes_.open("disk", Access::write);
        TARN_ASSERT(disk);
        const Result<> zeroed = co_await (*disk)->zero(0, volume_size_bytes, false);
        TARN_ASSERT(zeroed);
    }
    static Task<> serve(Connection& connection) { TARN_ASSERT(co_await connection.serve() == nullptr); }
    Task<> send(std::span<const std::byte> rest, size_t piece_size) {
        while (!rest.empty()) {
            const Result<size_t> count =
                co_await loop_->send(client_.get(), rest.first(std::min(piece_size, rest.size())));
            if (!count) break;
            rest = rest.subspan(*count);
            co_await Yield(*loop_);
        }
        ::shutdown(client_.get(), SHUT_WR);
    }
    Task<> collect() {
        std::vector<std::byte> bytes(64 * 1024);
        for (;;) {
            const Result<size_t> count = co_await loop_->receive(client_.get(), bytes);
            if (!count || *count == 0) co_return;
            said_.insert(said_.end(), bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(*count));
        }
    }

    std::unique_ptr<Loop> loop_;
    Share share_{1 << 20};
    Settings settings_;
    Newcomers newcomers_{8};
    Workspace workspace_;
    MemoryVolumes volumes_;
    UniqueFd client_;
    std::vector<std::byte> said_;
};

// How often each cookie was sent, in requests that came whole.
std::map<uint64_t, unsigned> cookies_of(const Agreed& agreed, std::span<const std::byte> requests) {
    std::map<uint64_t, unsigned> cookies;
    const size_t header_size = agreed.extended ? extended_request_size : request_size;
    while (requests.size() >= header_size) {
        const Result<Request> request = agreed.extended
                                            ? decode_extended_request(requests.first<extended_request_size>())
                                            : decode_request(requests.first<request_size>());
        if (!request || request->payload_bytes() > requests.size() - header_size) break;
        if (request->command == Command::disconnect) break;
        ++cookies[request->cookie];
        requests = requests.subspan(header_size + request->payload_bytes());
    }
    return cookies;
}

// Takes the answers to the options off the front.
std::span<const std::byte> after_options(const Agreed& agreed, std::span<const std::byte> said) {
    said = said.subspan(greeting_size);
    for (unsigned left = agreed.answer_count(); left > 0;) {
        TARN_ASSERT(said.size() >= 20 && load_big<uint64_t>(said.data()) == option_reply_magic);
        const auto type = static_cast<OptionReply>(load_big<uint32_t>(said.data() + 12));
        const bool is_refused = type == OptionReply::error_extended_headers_required;
        TARN_ASSERT(!is_refused && static_cast<uint32_t>(type) < 0x80000000);
        if (type == OptionReply::acknowledge) --left;
        said = said.subspan(20 + size_t{load_big<uint32_t>(said.data() + 16)});
    }
    return said;
}

// Each final chunk, or simple reply, is the only one to a request.
void check_replies(const Agreed& agreed, std::span<const std::byte> said, std::map<uint64_t, unsigned> cookies) {
    while (!said.empty()) {
        TARN_ASSERT(said.size() >= simple_reply_size);
        const auto magic = load_big<uint32_t>(said.data());
        uint64_t size = simple_reply_size;
        bool is_final = true;
        if (agreed.extended) {
            TARN_ASSERT(magic == extended_reply_magic && said.size() >= extended_reply_size);
            size = extended_reply_size + load_big<uint64_t>(said.data() + 24);
        } else if (magic == structured_reply_magic) {
            TARN_ASSERT(said.size() >= structured_reply_size);
            size = structured_reply_size + uint64_t{load_big<uint32_t>(said.data() + 16)};
        } else {
            TARN_ASSERT(magic == simple_reply_magic);
        }
        if (magic != simple_reply_magic) is_final = (load_big<uint16_t>(said.data() + 4) & chunk_done) != 0;
        uint64_t cookie = 0;
        std::memcpy(&cookie, said.data() + 8, sizeof cookie);
        TARN_ASSERT(cookies[cookie] > 0 && size <= said.size());
        if (is_final) --cookies[cookie];
        said = said.subspan(size);
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    static Session session;
    if (size < 2) return 0;
    const Agreed agreed(data[0]);
    const size_t piece_size = data[1] == 0 ? SIZE_MAX : data[1];
    const std::span<const std::byte> rest = std::as_bytes(std::span(data, size)).subspan(2);
    std::vector<std::byte> sent = agreed.options().bytes();
    sent.insert(sent.end(), rest.begin(), rest.end());
    const std::vector<std::byte> said = session.run(agreed, sent, piece_size);
    TARN_ASSERT(said.size() >= greeting_size);
    // A simple reply does not say how long it is.
    if (agreed.is_open && (agreed.structured || agreed.extended))
        check_replies(agreed, after_options(agreed, said), cookies_of(agreed, rest));
    return 0;
}
