// What a person reads of what the daemon answers.
#include "daemon/cli/print.hpp"

#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

namespace tarn {
namespace {

TEST(Print, status_says_why_a_host_is_not_connected_and_whose_space_is_unknown) {
    const Json status{
        {"peers",
         {{{"name", "a"}, {"address", "a:1"}, {"self", true}, {"reason", ""}},
          {{"name", "b"}, {"address", "b:1"}, {"connected", false}, {"reason", "its list of peers is not ours"}},
          {{"name", "c"}, {"address", "c:1"}, {"connected", true}, {"reason", ""}}}},
        {"space",
         {{"total_bytes", 4096}, {"free_bytes", 0}, {"silent_hosts", {"b", "d"}}, {"untold_hosts", {"e", "f"}}}}};
    std::ostringstream out;
    print_status(out, status);
    const std::string text = out.str();
    EXPECT_TRUE(text.contains("unreachable: its list of peers is not ours\n")) << text;
    EXPECT_TRUE(text.contains(" connected\n")) << text;
    EXPECT_FALSE(text.contains("until it has met")) << text;
    EXPECT_TRUE(text.contains("; as last told by b, d; without e, f, whose space is not known yet\n")) << text;
}

TEST(Print, status_says_that_a_host_does_not_serve_yet) {
    const Json status{{"serves", false}, {"peers", {{{"name", "a"}, {"self", true}}, {{"name", "b"}}}}};
    std::ostringstream out;
    print_status(out, status);
    EXPECT_TRUE(out.str().contains("\n         this host stores and serves nothing until it has met all others since"))
        << out.str();
}

TEST(Print, status_names_lost_pages_and_attributes) {
    const auto lost = [](const char* volume, uint64_t pages, bool attributes) {
        const Json status{{"losses",
                           {{{"volume", volume},
                             {"host", "c"},
                             {"pages", pages},
                             {"first_page", 1},
                             {"last_page", 255},
                             {"attributes", attributes}}}}};
        std::ostringstream out;
        print_status(out, status);
        return out.str();
    };
    EXPECT_TRUE(lost("v", 255, false).contains("LOST     v: maybe unflushed writes of 255 pages from 1 to 255, with"));
    EXPECT_TRUE(lost("v", 255, true).contains("255 pages from 1 to 255 and its attributes, with the memory of c"));
    EXPECT_TRUE(lost("v", 0, true).contains("LOST     v: maybe unflushed writes of its attributes, with"));
    EXPECT_TRUE(lost("", 0, false).contains("LOST     any volume: "));
}

TEST(Print, shards_are_shown_with_what_they_serve) {
    const Json status{{"shards",
                       {{{"cpus", "0-1"},
                         {"mode", "courteous"},
                         {"nbd_connections", 3},
                         {"mounts", 2},
                         {"links", 1},
                         {"requests", 12345},
                         {"hops", 67},
                         {"run_ns", 1'250'000'000},
                         {"run_delay_ns", 50'000'000}},
                        {{"cpus", ""}, {"mode", "free"}}}}};
    std::ostringstream out;
    print_shards(out, status);
    std::istringstream lines(out.str());
    std::vector<std::string> words;
    for (std::string word; lines >> word;) words.push_back(word);
    const std::vector<std::string> expected{
        "shards", "CPUs",      "thread", "is", "connections", "mounts", "links", "requests", "hops", "ran", "waited",
        "0-1",    "courteous", "3",      "2",  "1",           "12345",  "67",    "1.2",      "s",    "0.1", "s",
        "any",    "free",      "0",      "0",  "0",           "0",      "0",     "0.0",      "s",    "0.0", "s"};
    EXPECT_EQ(words, expected);
}

TEST(Print, links_are_shown_with_what_carries_them_and_how_much) {
    const Json status{{"peers",
                       {{{"name", "a"}, {"link", nullptr}},
                        {{"name", "b"},
                         {"link",
                          {{"transport", "shm"},
                           {"round_trip_ns", 12'345},
                           {"messages_sent", 3},
                           {"messages_received", 4},
                           {"bytes_sent", 1 << 20},
                           {"bytes_received", 2 << 20},
                           {"links", 3}}}},
                        {{"name", "c"}, {"link", {{"transport", "none"}}}},
                        {{"name", "d"}}}}};
    std::ostringstream out;
    print_links(out, status);
    std::istringstream lines(out.str());
    std::vector<std::string> words;
    for (std::string word; lines >> word;) words.push_back(word);
    const std::vector<std::string> expected{
        "links",   "host", "transport", "round", "trip", "messages", "to", "from", "bytes", "to", "from",
        "retries", "b",    "shm",       "12",    "us",   "3",        "4",  "1",    "MiB",   "2",  "MiB",
        "2",       "c",    "none",      "-",     "0",    "0",        "0",  "B",    "0",     "B",  "0"};
    EXPECT_EQ(words, expected);
}

TEST(Print, what_the_doctor_found_is_shown_with_what_mends_it) {
    const Json findings{{"findings",
                         {{{"about", "x"}, {"verdict", "good"}, {"seen", "fine"}, {"mend", ""}, {"effect", ""}},
                          {{"about", "y"}, {"verdict", "missing"}, {"seen", "none"}, {"mend", "m"}, {"effect", "e"}}}}};
    std::ostringstream out;
    print_findings(out, findings);
    EXPECT_EQ(out.str(),
              "good     x: fine\nmissing  y: none\n         try: m\n         for: e\n1 missing, 0 could be better\n");
}

}  // namespace
}  // namespace tarn
