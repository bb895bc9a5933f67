// Marks: of which pages it is durably on record that their newest bytes may be elsewhere than in their home's store.
//
// Home makes no host the owner of a page before the page is marked: an owner writes without a word, and when the memory
// that has the bytes is lost, with home's or with another host's, nobody else can tell of it. So a home that knows
// nothing of its pages any more takes for lost those that are marked, and no others.
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
