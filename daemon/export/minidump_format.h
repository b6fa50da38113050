// The layout of a minidump, as far as stackd writes one. It is a header, a directory of streams, and data that these point
// to by "RVA", the offset in the file. Little-endian; numbers may lie on any multiple of 4.
//
// The general part follows Microsoft's documentation of minidumpapiset.h and, for the registers, of winnt.h
// (https://learn.microsoft.com/windows/win32/api/minidumpapiset/); what Linux needs beyond that follows Breakpad's
// (https://chromium.googlesource.com/breakpad/breakpad/, src/google_breakpad/common/minidump_format.h).
#pragma once

#include <cstdint>

namespace stackd::minidump {

#pragma pack(push, 4)

inline constexpr uint32_t kSignature = 0x504d444d;  // "MDMP"
inline constexpr uint32_t kVersion = 0xa793;

struct Header {
  uint32_t signature;
  uint32_t version;
  uint32_t stream_count;
  uint32_t directory_rva;
  uint32_t checksum;  // 0: none
  uint32_t time_s;    // since 1970
  uint64_t flags;
};
static_assert(sizeof(Header) == 32);

struct Location {
  uint32_t size_bytes;
  uint32_t rva;
};
static_assert(sizeof(Location) == 8);

enum class StreamType : uint32_t {
  kThreadList = 3,
  kModuleList = 4,
  kMemoryList = 5,
  kException = 6,
  kSystemInfo = 7,
  kComment = 10,  // bytes, NUL-terminated
  kMiscInfo = 15,
  kThreadNames = 24,
  kLinuxMaps = 0x47670009,  // as /proc/PID/maps
};

struct DirectoryEntry {
  StreamType type;
  Location location;
};
static_assert(sizeof(DirectoryEntry) == 12);

// The lists are this and then their elements.
struct ListHead {
  uint32_t count;
};

struct MemoryDescriptor {
  uint64_t start_avma;
  Location memory;
};
static_assert(sizeof(MemoryDescriptor) == 16);

struct Thread {
  uint32_t tid;
  uint32_t suspend_count;
  uint32_t priority_class;
  uint32_t priority;
  uint64_t environment_block;
  MemoryDescriptor stack;
  Location context;
};
static_assert(sizeof(Thread) == 48);

struct ThreadName {
  uint32_t tid;
  uint64_t name_rva;  // of a String
};
static_assert(sizeof(ThreadName) == 12);

// Before UTF-16 units and a NUL that is not counted.
struct StringHead {
  uint32_t size_bytes;
};

struct Module {
  uint64_t base_avma;
  uint32_t size_bytes;
  uint32_t checksum;
  uint32_t time_s;
  uint32_t name_rva;  // of a String
  uint32_t version_info[13];
  Location codeview;
  Location misc;
  uint64_t reserved[2];
};
static_assert(sizeof(Module) == 108);

// The CodeView record of an ELF file: this, and then the build-id.
inline constexpr uint32_t kCodeViewElf = 0x4270454c;  // "BpEL"

struct ExceptionStream {
  uint32_t tid;
  uint32_t alignment;
  uint32_t code;   // Linux: signal
  uint32_t flags;  // Linux: si_code
  uint64_t nested_record;
  uint64_t address;  // Linux: si_addr
  uint32_t parameter_count;
  uint32_t alignment_too;
  uint64_t parameters[15];
  Location context;
};
static_assert(sizeof(ExceptionStream) == 168);

inline constexpr uint16_t kArchitectureAmd64 = 9;
inline constexpr uint32_t kPlatformLinux = 0x8201;

struct SystemInfo {
  uint16_t architecture;
  uint16_t processor_level;
  uint16_t processor_revision;
  uint8_t processor_count;
  uint8_t product_type;
  uint32_t os_major;
  uint32_t os_minor;
  uint32_t os_build;
  uint32_t platform;
  uint32_t os_text_rva;  // of a String
  uint16_t suite_mask;
  uint16_t reserved;
  uint32_t processor_features[6];
};
static_assert(sizeof(SystemInfo) == 56);

inline constexpr uint32_t kMiscInfoHasPid = 1;

struct MiscInfo {
  uint32_t size_bytes;
  uint32_t flags;
  uint32_t pid;
  uint32_t create_time_s;
  uint32_t user_time_s;
  uint32_t kernel_time_s;
};
static_assert(sizeof(MiscInfo) == 24);

// CONTEXT_AMD64, with which of its registers are there.
inline constexpr uint32_t kContextControlAndInteger = 0x00100000 | 1 | 2;

struct Context {
  uint64_t home[6];
  uint32_t flags;
  uint32_t mxcsr;
  uint16_t cs, ds, es, fs, gs, ss;
  uint32_t eflags;
  uint64_t debug[6];
  uint64_t rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi;
  uint64_t r8_to_r15[8];
  uint64_t rip;
  uint8_t floating_point[512];
  uint8_t vectors[26 * 16];
  uint64_t vector_control;
  uint64_t debug_control;
  uint64_t last_branches[4];
};
static_assert(sizeof(Context) == 1232);

#pragma pack(pop)

}  // namespace stackd::minidump
