// HostParts: what nearly every part of this host's Cache works with, handed on as one.
#pragma once

namespace tarn {

class FramePool;
class Membership;
class Pages;
class Peers;
class Store;
class Stripes;

struct HostParts {
    Membership& membership;
    Store& store;
    FramePool& pool;
    Pages& pages;
    Stripes& stripes;
    Peers& peers;
};

}  // namespace tarn
