// FakeVolume: a volume that can do nothing. Tests override what they need.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "frontends/volumes/volume.hpp"

namespace tarn {

class FakeVolume : public Volume {
  public:
    VolumeId id() const override { return 1; }
    std::shared_ptr<VolumeSession> session() const override { return session_; }
    bool try_pin(uint64_t, uint32_t, std::vector<Pin>&) override { return false; }
    void unpin(std::span<const Pin>) override {}
    bool try_read(uint64_t, std::span<std::byte>) override { return false; }
    bool try_write(uint64_t, std::span<const std::byte>, WriteReceipts*) override { return false; }
    std::optional<Attributes> try_attributes() override { return std::nullopt; }
    std::optional<uint64_t> try_size() override { return std::nullopt; }
    Task<Result<>> read(uint64_t, std::span<std::byte>) override { co_return fail(Errc::unsupported); }
    Task<Result<>> fetch(uint64_t, uint64_t) override { co_return fail(Errc::unsupported); }
    Task<Result<>> write(uint64_t, std::span<const std::byte>, WriteReceipts*) override {
        co_return fail(Errc::unsupported);
    }
    Task<Result<>> zero(uint64_t, uint64_t, bool, WriteReceipts*) override { co_return fail(Errc::unsupported); }
    Task<Result<>> flush() override { co_return fail(Errc::unsupported); }
    Task<Result<>> prefetch(uint64_t, uint64_t) override { co_return fail(Errc::unsupported); }
    Task<Result<std::vector<Extent>>> extents(uint64_t, uint64_t) override { co_return fail(Errc::unsupported); }
    std::vector<TierExtent> tiers(std::span<const Extent>) override { return {}; }
    Task<Result<Attributes>> attributes() override { co_return fail(Errc::unsupported); }
    Task<Result<uint64_t>> size() override { co_return fail(Errc::unsupported); }
    Task<Result<Attributes>> change_attributes(AttributeChange) override { co_return fail(Errc::unsupported); }
    Task<Result<>> write_growing(uint64_t, std::span<const std::byte>) override { co_return fail(Errc::unsupported); }
    Task<Result<uint64_t>> append(std::span<const std::byte>) override { co_return fail(Errc::unsupported); }

  private:
    const std::shared_ptr<VolumeSession> session_ = std::make_shared<VolumeSession>();
};

}  // namespace tarn
