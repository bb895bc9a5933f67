// Marks: the durable record of pages whose newest bytes may be elsewhere than in their home's store.
//
// Home makes no host the owner of a page before the page is marked: an owner writes without telling home, and when the
// memory with the bytes is lost, home's or another host's, nobody else knows of them. So a home that lost its directory
// counts the marked pages as lost, and no others.
#pragma once

#include "tiers/page.hpp"

namespace tarn::protocol {

class Marks {
  public:
    virtual bool has(PageId page) const = 0;

  protected:
    ~Marks() = default;
};

}  // namespace tarn::protocol
