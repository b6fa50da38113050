#include "daemon/symbolize/worker.h"

#include <elfutils/libdw.h>
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <list>
#include <memory>
#include <new>
#include <numeric>
#include <optional>
#include <utility>

#include "daemon/base/clock.h"
#include "daemon/symbolize/debug_files.h"
#include "daemon/symbolize/module_symbols.h"
#include "daemon/symbolize/sandbox.h"
#include "daemon/symbolize/worker_protocol.h"

namespace stackd {
namespace {

// Each open module holds up to three files.
constexpr size_t kMaxOpenModules = 64;
// Pages of files beyond this are unmapped. Of those, some 15 MiB are the program and its libraries.
constexpr uint64_t kMappedLimitBytes = 48ull << 20;

[[noreturn]] void EndOutOfMemory() { _exit(kWorkerOutOfMemory); }

struct Request {
  RequestHeader header;
  std::string path;
  std::vector<uint64_t> svmas;
  Fd module;
};

class Worker {
 public:
  Worker(Fd socket, Fd statm, uint64_t memory_limit_bytes, const std::vector<std::string>& debug_dirs)
      : socket_(std::move(socket)),
        memory_limit_bytes_(memory_limit_bytes),
        debug_files_(debug_dirs, [this](size_t folder, const std::string& path) { return AskForFile(folder, path); }),
        statm_(std::move(statm)) {}

  int Run() {
    while (true) {
      std::optional<Request> request = Receive();
      if (!request) return exit_code_;
      if (!Serve(*request)) return 0;  // the daemon is gone
      if (!MakeRoom(nullptr)) return kWorkerRecycled;
    }
  }

 private:
  // Beyond this, memory is given back before the next address.
  uint64_t soft_limit_bytes() const { return memory_limit_bytes_ / 10 * 6; }

  std::optional<Request> Receive() {
    Request request;
    if (!ReceiveHeader(&request)) return std::nullopt;
    const RequestHeader& header = request.header;
    exit_code_ = kWorkerBadRequest;
    if (!request.module.valid() || header.path_bytes > kMaxRequestPathBytes ||
        header.address_count > kMaxRequestAddresses) {
      return std::nullopt;
    }
    request.path.resize(header.path_bytes);
    request.svmas.resize(header.address_count);
    if (!ReadFully(request.path.data(), request.path.size()) ||
        !ReadFully(request.svmas.data(), request.svmas.size() * sizeof(uint64_t))) {
      return std::nullopt;
    }
    return request;
  }

  // As recvmsg; `fd` is what came along, if anything.
  ssize_t ReceiveWithFd(void* out, size_t size_bytes, Fd* fd) {
    iovec part{out, size_bytes};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    const ssize_t n = recvmsg(socket_.get(), &message, MSG_CMSG_CLOEXEC);
    if (n <= 0) return n;
    cmsghdr* rights = CMSG_FIRSTHDR(&message);
    if (rights != nullptr && rights->cmsg_type == SCM_RIGHTS && rights->cmsg_len == CMSG_LEN(sizeof(int))) {
      int received;
      memcpy(&received, CMSG_DATA(rights), sizeof(received));
      *fd = Fd(received);
    }
    return n;
  }

  // A debug file, from the daemon. Invalid if there is none, or no daemon any more: then the answer will not get there.
  Fd AskForFile(size_t folder, const std::string& relative_path) {
    Fd file;
    std::string request = FileRequest(static_cast<uint32_t>(folder), relative_path);
    char byte;
    if (Send(&request)) ReceiveWithFd(&byte, sizeof(byte), &file);
    return file;
  }

  bool ReceiveHeader(Request* request) {
    exit_code_ = 0;
    const ssize_t n = ReceiveWithFd(&request->header, sizeof(request->header), &request->module);
    if (n <= 0) return false;
    return ReadFully(reinterpret_cast<char*>(&request->header) + n, sizeof(request->header) - n);
  }

  bool ReadFully(void* out, size_t size_bytes) {
    char* next = static_cast<char*>(out);
    while (size_bytes > 0) {
      ssize_t n = read(socket_.get(), next, size_bytes);
      if (n <= 0) return false;
      next += n;
      size_bytes -= n;
    }
    return true;
  }

  // False if the other side is gone.
  bool Serve(Request& request) {
    ModuleSymbols& module = Open(request);
    // Neighbours in the file share units, and pages.
    std::vector<uint32_t> order(request.svmas.size());
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return request.svmas[a] < request.svmas[b]; });
    int64_t last_send_ns = MonotonicNs();
    std::string out;
    for (uint32_t i : order) {
      uint64_t svma = request.svmas[i];
      SourceLocation location = request.header.phase == Phase::kNames ? module.Name(svma) : module.Locate(svma);
      AppendAnswer(i, module.quality(), location, &out);
      // What is known is sent on the way: the next address may take long, or be the worker's last.
      constexpr size_t kSendBytes = 32768;
      if (out.size() >= kSendBytes || MonotonicNs() - last_send_ns >= kNsPerMs) {
        if (!Send(&out)) return false;
        last_send_ns = MonotonicNs();
      }
      if (request.header.phase == Phase::kLines) MakeRoom(&module);
    }
    return Send(&out);
  }

  bool Send(std::string* out) {
    for (size_t sent = 0; sent < out->size();) {
      ssize_t n = send(socket_.get(), out->data() + sent, out->size() - sent, MSG_NOSIGNAL);
      if (n <= 0) return false;
      sent += n;
    }
    out->clear();
    return true;
  }

  ModuleSymbols& Open(Request& request) {
    auto it =
        std::find_if(modules_.begin(), modules_.end(), [&](const auto& m) { return m.first == request.header.module_id; });
    if (it != modules_.end()) {
      modules_.splice(modules_.begin(), modules_, it);
      return *modules_.front().second;
    }
    if (modules_.size() >= kMaxOpenModules) modules_.pop_back();
    // Half of the memory for decompressed sections, so that the index fits beside them.
    modules_.emplace_front(request.header.module_id,
                           std::make_unique<ModuleSymbols>(std::move(request.module), std::move(request.path),
                                                           &debug_files_, memory_limit_bytes_ / 2));
    return *modules_.front().second;
  }

  // Forgets modules, least recently used first, until memory is below the soft limit. `in_use` is kept, but not what it
  // holds of debug data. False if nothing is left to forget: the heap is in pieces.
  bool MakeRoom(ModuleSymbols* in_use) {
    Resident resident = ReadResident();
    if (resident.mapped_bytes > kMappedLimitBytes) {
      for (const auto& [id, module] : modules_) module->ReleasePages();
    }
    for (; resident.anonymous_bytes > soft_limit_bytes(); resident = ReadResident()) {
      if (modules_.empty()) return false;
      bool only_one_left = modules_.back().second.get() == in_use;
      if (only_one_left) {
        in_use->DropDwarf();
      } else {
        modules_.pop_back();
      }
      malloc_trim(0);
      if (only_one_left) break;
    }
    return true;
  }

  struct Resident {
    uint64_t anonymous_bytes;
    uint64_t mapped_bytes;  // of files, our own libraries included
  };

  Resident ReadResident() const {
    char text[128] = {};
    unsigned long pages_total = 0, pages_resident = 0, pages_shared = 0;
    if (pread(statm_.get(), text, sizeof(text) - 1, 0) <= 0) return {};
    if (sscanf(text, "%lu %lu %lu", &pages_total, &pages_resident, &pages_shared) != 3 || pages_resident < pages_shared)
      return {};
    return {(pages_resident - pages_shared) * 4096, pages_shared * 4096};
  }

  Fd socket_;
  const uint64_t memory_limit_bytes_;
  const DebugFiles debug_files_;
  const Fd statm_;
  std::list<std::pair<uint64_t, std::unique_ptr<ModuleSymbols>>> modules_;  // most recently used first
  int exit_code_ = 0;
};

}  // namespace

int RunConfined(uint64_t memory_limit_bytes, const std::function<int(Fd socket, Fd statm)>& serve) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  prctl(PR_SET_NAME, "stackd-symbols");
  LimitResources(memory_limit_bytes);
  Fd statm(open("/proc/self/statm", O_RDONLY | O_CLOEXEC));
  if (!ForbidAllButOpenFiles()) return kWorkerUnconfined;
  return serve(Fd(kWorkerSocketFd), std::move(statm));
}

int RunSymbolizeWorkerIfAsked(int argc, char** argv) {
  if (argc < 3 || strcmp(argv[1], kWorkerFlag) != 0) return -1;
  const uint64_t memory_limit_bytes = strtoull(argv[2], nullptr, 10);
  const std::vector<std::string> debug_dirs(argv + 3, argv + argc);
  return RunConfined(memory_limit_bytes, [&](Fd socket, Fd statm) {
    std::set_new_handler(EndOutOfMemory);
    return Worker(std::move(socket), std::move(statm), memory_limit_bytes, debug_dirs).Run();
  });
}

}  // namespace stackd
