// What nearly every test includes, compiled once. It spares nobody an include: without it (-Db_pch=false) all compiles.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "utils/loop.hpp"
