// Runs a fuzz target without libFuzzer: over each file of a corpus, and over mutations of them.
//
//     TARGET [--mutations=N] [--seconds=S] FOLDER...
//
// N mutations of each file (default 0), the same in every run. Or mutations without end until S seconds have passed, which
// differ from run to run. What crashes is found by the signal or the sanitizer's report. The input that did it is written
// to fuzz_input, in $TEST_UNDECLARED_OUTPUTS_DIR or in the current folder. With --keep it is written before each mutation.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size_bytes);

namespace {

using Bytes = std::vector<uint8_t>;

struct Options {
  uint64_t mutations = 0;
  int64_t seconds = 0;
  bool keep = false;
  std::vector<std::string> folders;
};

bool TakeNumber(const std::string& argument, const char* name, auto& number) {
  std::string prefix = std::string("--") + name + "=";
  if (!argument.starts_with(prefix)) return false;
  number = strtoll(argument.c_str() + prefix.size(), nullptr, 10);
  return true;
}

Options ParseOptions(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    std::string argument = argv[i];
    if (TakeNumber(argument, "mutations", options.mutations) || TakeNumber(argument, "seconds", options.seconds)) continue;
    if (argument == "--keep") {
      options.keep = true;
    } else {
      options.folders.push_back(argument);
    }
  }
  return options;
}

std::vector<Bytes> ReadCorpus(const std::vector<std::string>& folders) {
  std::vector<std::string> paths;
  for (const std::string& folder : folders) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
      if (entry.is_regular_file()) paths.push_back(entry.path());
    }
  }
  std::ranges::sort(paths);
  std::vector<Bytes> corpus;
  for (const std::string& path : paths) {
    std::ifstream file(path, std::ios::binary);
    corpus.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return corpus;
}

class Mutator {
 public:
  Mutator(const std::vector<Bytes>& corpus, uint64_t seed) : corpus_(corpus), random_(seed) {}

  Bytes Mutate(Bytes bytes) {
    for (uint64_t changes = 1 + Below(4); changes > 0; --changes) Change(bytes);
    return bytes;
  }

 private:
  // Numbers at which parsers go wrong.
  static constexpr uint64_t kNumbers[] = {0,
                                          1,
                                          7,
                                          8,
                                          0x7f,
                                          0x80,
                                          0xff,
                                          0x7fff,
                                          0x8000,
                                          0xffff,
                                          0x7fffffff,
                                          0x80000000,
                                          0xffffffff,
                                          0x7fffffffffffffff,
                                          0x8000000000000000,
                                          0xffffffffffffffff};

  uint64_t Below(uint64_t limit) { return limit == 0 ? 0 : random_() % limit; }

  void Change(Bytes& bytes) {
    if (bytes.empty()) bytes.push_back(static_cast<uint8_t>(random_()));
    size_t at = Below(bytes.size());
    switch (Below(8)) {
      case 0:
        bytes[at] ^= static_cast<uint8_t>(1u << Below(8));
        break;
      case 1:
        bytes[at] = static_cast<uint8_t>(random_());
        break;
      case 2: {
        uint64_t number = kNumbers[Below(std::size(kNumbers))];
        memcpy(bytes.data() + at, &number, std::min(size_t{1} << Below(4), bytes.size() - at));
        break;
      }
      case 3:
        bytes[at] = static_cast<uint8_t>(bytes[at] + Below(16) - 8);
        break;
      case 4:
        bytes.resize(at);
        break;
      case 5:
        Erase(bytes, at, Below(16));
        break;
      case 6:
        Insert(bytes, at, bytes, Below(bytes.size()), Below(64));
        break;
      case 7: {
        const Bytes& other = corpus_[Below(corpus_.size())];
        Insert(bytes, at, other, Below(other.size()), Below(256));
        break;
      }
    }
  }

  static void Erase(Bytes& bytes, size_t at, size_t count) {
    auto first = bytes.begin() + static_cast<ptrdiff_t>(at);
    bytes.erase(first, first + static_cast<ptrdiff_t>(std::min(count, bytes.size() - at)));
  }

  static void Insert(Bytes& bytes, size_t at, const Bytes& source, size_t from, size_t count) {
    constexpr size_t kMaxBytes = 1 << 20;
    if (bytes.size() > kMaxBytes) return;
    auto first = source.begin() + static_cast<ptrdiff_t>(from);
    Bytes piece(first, first + static_cast<ptrdiff_t>(std::min(count, source.size() - from)));
    bytes.insert(bytes.begin() + static_cast<ptrdiff_t>(at), piece.begin(), piece.end());
  }

  const std::vector<Bytes>& corpus_;
  std::mt19937_64 random_;
};

void Keep(const Bytes& bytes) {
  const char* folder = getenv("TEST_UNDECLARED_OUTPUTS_DIR");
  std::ofstream file(std::string(folder != nullptr ? folder : ".") + "/fuzz_input", std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

uint64_t RunMutations(const Options& options, const std::vector<Bytes>& corpus) {
  using Clock = std::chrono::steady_clock;
  bool timed = options.seconds > 0;
  Clock::time_point deadline = Clock::now() + std::chrono::seconds(options.seconds);
  Mutator mutator(corpus, timed ? std::random_device()() : 1);
  uint64_t runs = 0;
  while (timed ? Clock::now() < deadline : runs < options.mutations * corpus.size()) {
    Bytes input = mutator.Mutate(corpus[runs % corpus.size()]);
    if (options.keep) Keep(input);
    LLVMFuzzerTestOneInput(input.data(), input.size());
    ++runs;
  }
  return runs;
}

}  // namespace

int main(int argc, char** argv) {
  Options options = ParseOptions(argc, argv);
  std::vector<Bytes> corpus = ReadCorpus(options.folders);
  if (corpus.empty()) {
    fprintf(stderr, "No corpus: name a folder with files.\n");
    return 1;
  }
  for (const Bytes& input : corpus) LLVMFuzzerTestOneInput(input.data(), input.size());
  uint64_t runs = RunMutations(options, corpus);
  printf("%zu files, %llu mutations\n", corpus.size(), static_cast<unsigned long long>(runs));
  return 0;
}
