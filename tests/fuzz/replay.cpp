// The fuzz targets without a fuzzer: runs each input that is named, or lies in a folder that is named.
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

unsigned run(const std::filesystem::path& path) {
    if (std::filesystem::is_directory(path)) {
        unsigned count = 0;
        for (const auto& entry : std::filesystem::directory_iterator(path)) count += run(entry.path());
        return count;
    }
    std::ifstream file(path, std::ios::binary);
    const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
    return 1;
}

}  // namespace

int main(int argc, char** argv) {
    unsigned count = 0;
    for (int index = 1; index < argc; ++index) count += run(argv[index]);
    std::printf("%u inputs\n", count);
    return count > 0 ? 0 : 1;
}
