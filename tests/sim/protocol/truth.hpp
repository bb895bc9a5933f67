// Truth: every write of a page in the order in which it took effect, and the versions that may be read now.
//
// The simulator sees the moment at which each operation touches a frame, so linearizability (C2, I2) is checked where
// it is strongest: a read must find exactly the latest write, of every sector. After a crash the page may have gone
// back to an older version: only over writes that the crash may take (D2, D3), never below a flush (D1), and never
// silently (the write verifier must have changed). A version that was lost must not come back.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "coherence/protocol/flush.hpp"
#include "tests/sim/protocol/coverage.hpp"
#include "tests/sim/support/small_map.hpp"
#include "tiers/page.hpp"

namespace tarn::sim {

struct Content {
    uint64_t version = 0;  // number of the write that made it; 0: never written
    std::array<uint64_t, sectors_per_page> sectors{};
    bool zero = true;  // travels as flag_zero; the values that tell writes apart are carried beside it
    bool operator==(const Content&) const = default;
};

// Which incarnations a write needs to survive, and under which verifier it was made.
struct WriteOrigin {
    HostId writer = no_host;
    uint32_t writer_incarnation = 0;
    HostId home = no_host;
    uint32_t home_incarnation = 0;
    protocol::Verifier noted = 0;
    protocol::SessionId session = 0;
};

class Truth {
  public:
    // Incarnation of a host that is up, 0 of one that is down; and the present verifier of a page's volume at its home.
    struct World {
        virtual ~World() = default;
        virtual uint32_t incarnation_of(HostId host) const = 0;
        virtual protocol::Verifier verifier_of(PageId page) const = 0;
        virtual uint64_t stored_version_of(PageId page) const = 0;  // durable at its home
        // An access found that writes are gone, as a crash may cause.
        virtual void lost(PageId page) = 0;
    };
    Truth(World& world, Coverage& coverage) : world_(world), coverage_(coverage) {}

    void check_read(PageId page, const Content& content);
    // Changes the content of the frame. The reply may follow later.
    void write(PageId page, Content& content, DirtyMask mask, bool zero, const WriteOrigin& origin);

    // The client has the reply to the write that made this version, and its session has it noted.
    void replied(PageId page, uint64_t version, protocol::SessionId session);

    // A host that home knows as owner or anchor holds the latest version: only its end or home's can take that.
    void secure(PageId page, const WriteOrigin& holder);

    // What a flush of this session that starts now must cover at least, and that it succeeded. That is every write that
    // still exists, and the session's own writes even if they are lost: then the flush must not succeed.
    using Cover = std::vector<std::pair<PageId, uint64_t>>;
    Cover cover_of(VolumeId volume, protocol::SessionId session) const;
    void flushed(const Cover& cover);

  private:
    struct Version {
        Content content;
        WriteOrigin origin;
        bool replied = false;
    };
    struct Page {
        std::vector<Version> log{Version{}};  // the first entry: never written
        uint64_t flushed = 0;                 // the page may not go back below this version
    };

    std::string describe(PageId page, const Content& found) const;
    bool may_be_lost(const Version& version) const;

    World& world_;
    Coverage& coverage_;
    uint64_t last_version_ = 0;
    SmallMap<PageId, Page> pages_;
    // The lost writes of each session: none of its flushes may succeed any more.
    std::map<protocol::SessionId, Cover> lost_;
};

}  // namespace tarn::sim
