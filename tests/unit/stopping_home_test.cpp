// A host that is told to stop while its home has not come to serve again: what it may report as durable. The test plays
// the others, who are away.
#include "daemon/catalog/catalog.hpp"
#include "tests/unit/recovering_home.hpp"

namespace tarn::home_on_device {
namespace {

class StoppingHome : public RecoveringHome {
  protected:
    // Whether it says so, without waiting for anybody.
    bool says_that_all_is_durable() {
        volumes_ = std::make_unique<VolumeContext>(*cache_);
        catalog_ = std::make_unique<Catalog>(*volumes_, std::vector<Loop*>{loop_.get()},
                                             std::vector<std::string>{"a", "b", "c"});
        loop_->spawn(flush_all(*catalog_, is_durable_));
        loop_->run_until_done(turns(*loop_));
        return is_durable_.value_or(false);
    }

    void write(PageId page, bool flushed) {
        VolumeContext volumes(*cache_);
        CachedVolume volume(volumes, volume_id);
        size_t written = 0;
        loop_->run_until_done(write_pages(volume, page.number(), 1, written));
        ASSERT_EQ(written, 1u);
        const uint64_t at = page.number() * page_size;
        if (flushed) ASSERT_TRUE(loop_->run_until_done(volume.flush_range(at, page_size, false)));
    }

  private:
    static Task<> flush_all(Catalog& catalog, std::optional<bool>& is_durable) {
        is_durable = (co_await catalog.flush_all(0)).has_value();
    }

    std::unique_ptr<VolumeContext> volumes_;
    std::unique_ptr<Catalog> catalog_;
    std::optional<bool> is_durable_;
};

// The memory would be dropped, and the store was left as it was found.
TEST_F(StoppingHome, owes_the_bytes_of_home_that_a_process_before_left_in_memory) {
    link_all();
    serve();
    const PageId page = page_at_home(0);
    write(page, false);
    cache_->stripes().step(protocol::Event::evict_at_once(page));
    restart();
    ASSERT_TRUE(cache_->membership().recovering());
    ASSERT_EQ(cache_->adopted_page_count(), 0u) << "nobody holds it";
    EXPECT_EQ(cache_->dirty_frame_count(), 1u);
    EXPECT_EQ(cache_->home_store().writer().dirty_volumes(), std::vector<VolumeId>{volume_id});
    EXPECT_FALSE(says_that_all_is_durable());
    end();
}

// Its home may lack it by now, and says so once it serves.
TEST_F(StoppingHome, owes_what_a_process_before_held_and_had_flushed) {
    link_all();
    serve();
    const PageId page = page_at_home(0);
    write(page, true);
    restart();
    ASSERT_EQ(cache_->dirty_frame_count(), 0u);
    ASSERT_GT(cache_->adopted_page_count(), 0u);
    EXPECT_FALSE(says_that_all_is_durable());
    end();
}

TEST_F(StoppingHome, owes_nothing_without_anything_in_memory) {
    restart();
    ASSERT_EQ(cache_->adopted_page_count() + cache_->dirty_frame_count(), 0u);
    EXPECT_TRUE(says_that_all_is_durable());
    end();
}

}  // namespace
}  // namespace tarn::home_on_device
