#include "daemon/managed/go/goroutine_reader.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>
#include <utility>

#include "daemon/base/clock.h"
#include "daemon/base/run_beside.h"
#include "daemon/managed/go/callback_frames.h"

namespace stackd {
namespace {

// If there are more, the first are read.
constexpr uint64_t kMaxGoroutines = 250'000;
// So few that what is read of them stays in the CPU's cache, and its pages are faulted in once.
constexpr size_t kBatchGoroutines = 256;
// Part of a thread's stack, from the innermost end, that is compared with the copy.
constexpr uint64_t kMaxStackBytes = 64 << 10;
constexpr uint64_t kMaxUserAvma = 1ull << 47;
constexpr int kTries = 3;

template <typename T>
T Load(std::span<const uint8_t> bytes, size_t position) {
  T value;
  memcpy(&value, bytes.data() + position, sizeof(T));
  return value;
}

void MakeKey(std::span<const GoFrame> frames, GoWalkEnd end, std::string* key) {
  key->assign(1, static_cast<char>(end));
  for (const GoFrame& frame : frames) {
    key->append(reinterpret_cast<const char*>(&frame.pc_avma), sizeof(frame.pc_avma));
    key->push_back(frame.is_exact ? 1 : 0);
  }
}

std::string WhyMissing(GoWalkEnd end) {
  switch (end) {
    case GoWalkEnd::kTop:
    case GoWalkEnd::kStackSwitch:
      return {};
    case GoWalkEnd::kNoCode:
      return "a return address is no Go code";
    case GoWalkEnd::kUnreadable:
      return "the outer part of the stack was not read";
    case GoWalkEnd::kLate:
      return "there was no time for the outer part of the stack";
    case GoWalkEnd::kLimit:
      return "the stack has too many frames";
  }
  return {};
}

bool IsExportedByRuntime(std::string_view name) {
  constexpr std::string_view kPackage = "runtime.";
  return name.size() > kPackage.size() && name[kPackage.size()] >= 'A' && name[kPackage.size()] <= 'Z';
}

bool CallsUserCodeByDesign(std::string_view name) {
  return name == "runtime.runfinq" || name == "runtime.runFinalizers" || name == "runtime.runCleanups";
}

// Which frames the runtime's own traceback shows (runtime.showfuncinfo): none of its inner workings.
bool IsShown(const GoPlace& place, std::string_view callee, bool is_first) {
  const std::string_view name = place.function;
  const bool callee_panics = callee == "runtime.gopanic" || callee == "runtime.sigpanic" || callee == "runtime.panicwrap";
  if (place.is_wrapper && !callee_panics) return false;
  if (CallsUserCodeByDesign(name)) return true;
  if (name == "runtime.gopanic" && !is_first) return true;
  return name.find('.') != name.npos && (!name.starts_with("runtime.") || IsExportedByRuntime(name));
}

// About what it takes in memory.
template <typename T>
uint64_t SizeOf(const T& named) {
  return sizeof(named) + named.function.size() + named.file.size();
}

std::string BaseName(const std::string& path) { return path.substr(path.rfind('/') + 1); }

}  // namespace

GoroutineReader::GoroutineReader(const GoBinary& binary, uint64_t bias, const RuntimeInput& input, ManagedFacts* facts)
    : binary_(binary),
      bias_(bias),
      input_(input),
      facts_(facts),
      // The clock of a process that has ended stands, and where is not known.
      now_ns_(input.memory->is_image() ? 0 : MonotonicNs()),
      walker_(binary, bias, input.deadline_ns) {}

bool GoroutineReader::is_late() const { return MonotonicNs() > input_.deadline_ns; }

std::string GoroutineReader::Read() {
  if (input_.frames_only) {
    AddThreads();
    return {};
  }
  std::vector<uint64_t> list;
  std::string problem = ReadList(&list);
  facts_->tasks.reserve(facts_->tasks.size() + list.size());
  for (int attempt = 1; attempt <= kTries && !list.empty(); ++attempt) list = ReadAll(list, attempt == kTries);
  if (unread_ > 0) facts_->notes.push_back(std::to_string(unread_) + " goroutines could not be read in time");
  if (moving_ > 0) {
    facts_->notes.push_back(std::to_string(moving_) + " goroutines ran whenever they were looked at: they have no stack");
  }
  if (without_room_ > 0) {
    facts_->notes.push_back("the stacks of " + std::to_string(without_room_) +
                            " goroutines were left out: those of the others fill " + std::to_string(kMaxBytes >> 20) +
                            " MiB");
  }
  if (senseless_ > sensible_) {
    return "what its memory holds does not look like goroutines of " + binary_.version();
  }
  FindThreads();
  AddThreads();
  const bool has_all = problem.empty() && unread_ == 0 && moving_ == 0 && without_room_ == 0 && senseless_ == 0;
  if (has_all && !is_cut_ && !input_.capture.crash) {
    StuckGoroutines(binary_, bias_, *input_.memory, input_.deadline_ns).Find(places_of_tasks_, lock_waiters_, facts_);
  }
  return problem;
}

std::string GoroutineReader::ReadList(std::vector<uint64_t>* list) {
  const uint64_t slice_avma = binary_.all_goroutines_svma() + bias_;
  struct Slice {
    uint64_t start, length, capacity;
    bool operator==(const Slice&) const = default;
  };
  auto read_slice = [&]() -> std::optional<Slice> {
    Slice slice;
    uint8_t bytes[sizeof(slice)];
    if (input_.memory->ReadSome(slice_avma, bytes) != sizeof(bytes)) return std::nullopt;
    memcpy(&slice, bytes, sizeof(slice));
    return slice;
  };
  // It is written word by word: two equal looks are one slice.
  std::optional<Slice> slice = read_slice();
  for (int look = 0; look < kTries && slice; ++look) {
    const std::optional<Slice> again = read_slice();
    if (again == slice) break;
    slice = again;
  }
  if (!slice) return "its list of goroutines could not be read";
  if (slice->length > slice->capacity || slice->start % 8 != 0 || slice->start >= kMaxUserAvma) {
    return "its list of goroutines makes no sense";
  }
  const uint64_t count = std::min(slice->length, kMaxGoroutines);
  auto bytes = input_.memory->ReadMemory(slice->start, 8 * count);
  if (!bytes) return "its list of goroutines could not be read";
  list->resize(count);
  memcpy(list->data(), bytes->data(), 8 * count);
  is_cut_ = count < slice->length;
  if (is_cut_) {
    facts_->notes.push_back("only the first " + std::to_string(count) + " of " + std::to_string(slice->length) +
                            " goroutines were read");
  }
  return {};
}

// Most of it is the kernel's work and two threads share it: one waits for memory while the other decodes. What they find is
// added in the order of the list.
std::vector<uint64_t> GoroutineReader::ReadAll(std::span<const uint64_t> list, bool is_last_try) {
  std::vector<uint64_t> moved;
  const size_t batches = (list.size() + kBatchGoroutines - 1) / kBatchGoroutines;
  std::atomic<size_t> next = 0, turn = 0;
  const auto work = [&] {
    GoroutineLook look(binary_, bias_, *input_.memory, input_.deadline_ns);
    for (size_t batch; (batch = next.fetch_add(1)) < batches;) {
      auto rest =
          list.subspan(batch * kBatchGoroutines, std::min(kBatchGoroutines, list.size() - batch * kBatchGoroutines));
      while (!rest.empty()) {
        const size_t count = is_late() ? 0 : look.Look(rest);
        for (size_t before; (before = turn.load()) != batch;) turn.wait(before);
        if (count == 0) {
          unread_ += static_cast<int64_t>(rest.size());
          break;
        }
        AddSeen(look, is_last_try, &moved);
        rest = rest.subspan(count);
      }
      ++turn;
      turn.notify_all();
    }
  };
  std::jthread other;
  if (batches > 1) other = RunBeside(work);
  work();
  if (other.joinable()) other.join();
  return moved;
}

void GoroutineReader::AddSeen(const GoroutineLook& look, bool is_last_try, std::vector<uint64_t>* moved) {
  using Sight = GoroutineLook::Sight;
  for (const GoroutineLook::Seen& seen : look.seen()) {
    const bool again = seen.sight == Sight::kSenseless || seen.sight == Sight::kMoved;
    if (again && !is_last_try) {
      moved->push_back(seen.goroutine.g_avma);
      continue;
    }
    ++(seen.sight == Sight::kSenseless ? senseless_ : sensible_);
    moving_ += seen.sight == Sight::kMoved;
    if (seen.sight != Sight::kSenseless) Add(seen.goroutine, look.FramesOf(seen), seen.end, seen.sight == Sight::kStill);
  }
}

void GoroutineReader::Add(const Goroutine& goroutine, std::span<const GoFrame> frames, GoWalkEnd end, bool has_frames) {
  if (IsSystem(goroutine, frames)) return;
  ManagedTask task;
  task.kind = ManagedTaskKind::kGoroutine;
  task.id = goroutine.id;
  task.state = GoStatusName(goroutine.status).value_or("");
  const bool waits = goroutine.status == kGoWaiting || goroutine.status == kGoLeaked;
  if (waits) task.wait_reason = GoWaitReason(binary_.layout(), goroutine.wait_reason);
  const bool has_time = (waits || goroutine.status == kGoSyscall) && goroutine.wait_since_ns > 0;
  if (has_time && goroutine.wait_since_ns <= now_ns_) task.wait_ns = now_ns_ - goroutine.wait_since_ns;
  if (has_frames) task.stack = StackOf(frames, end);
  task.created_by = CreatorAt(goroutine.go_pc);
  task.creator_id = goroutine.parent_id;
  places_of_tasks_.push_back({facts_->tasks.size(), goroutine.sp(), goroutine.stack_hi});
  if (waits && IsLockWait(task.wait_reason)) lock_waiters_.push_back({goroutine, facts_->tasks.size()});
  if (goroutine.m_avma != 0) on_threads_.push_back({goroutine, facts_->tasks.size()});
  facts_->tasks.push_back(std::move(task));
}

int32_t GoroutineReader::StackOf(std::span<const GoFrame> frames, GoWalkEnd end) {
  MakeKey(frames, end, &key_);
  const auto known = stack_numbers_.find(key_);
  if (known != stack_numbers_.end()) return known->second;
  if (is_full()) {
    ++without_room_;
    return -1;
  }
  ManagedStack stack;
  stack.language = Language::kGo;
  stack.problem = WhyMissing(end);
  stack.frames = Name(frames, false, &stack.problem);
  const auto number = static_cast<int32_t>(facts_->task_stacks.size());
  facts_->task_stacks.push_back(std::move(stack));
  used_bytes_ += key_.size();
  stack_numbers_.emplace(key_, number);
  return number;
}

// Names all frames of a thread, each at its place among the native frames. Of a goroutine it names those that the runtime
// would show, or all if the runtime would show none.
std::vector<ManagedFrame> GoroutineReader::Name(std::span<const GoFrame> frames, bool for_thread, std::string* problem) {
  std::vector<ManagedFrame> shown, all;
  std::string_view callee;
  for (const GoFrame& frame : frames) {
    uint64_t anchor_avma = for_thread ? frame.sp_avma : 0;
    const std::vector<GoPlace>& places = PlacesAt(frame);
    if (places.empty()) {
      *problem = "there was no room or no time for the outer part of the stack";
      break;
    }
    for (const GoPlace& place : places) {
      ManagedFrame named;
      named.function = place.function;
      named.file = place.file;
      named.line = place.line;
      named.anchor_avma = std::exchange(anchor_avma, 0);
      named.pc_avma = frame.pc_avma;
      named.inlined = place.inlined;
      used_bytes_ += SizeOf(named);
      if (IsShown(place, callee, all.empty())) shown.push_back(named);
      all.push_back(std::move(named));
      callee = place.function;
    }
  }
  return for_thread || shown.empty() ? all : shown;
}

const std::vector<GoPlace>& GoroutineReader::PlacesAt(const GoFrame& frame) {
  // A call returns to the instruction behind it, perhaps in the next line.
  const uint64_t svma = frame.pc_avma - bias_;
  const std::optional<GoFunction> function = binary_.FindFunction(svma);
  const bool at_entry = function && svma - binary_.text_svma() == function->entry;
  const uint64_t looked_up = frame.is_exact || at_entry ? svma : svma - 1;
  static const std::vector<GoPlace> kNone;
  if (is_full()) return kNone;
  const auto known = places_.find(looked_up);
  if (known != places_.end()) return known->second;
  if (is_late()) return kNone;
  const std::vector<GoPlace>& places = places_[looked_up] = binary_.Places(looked_up);
  for (const GoPlace& place : places) used_bytes_ += SizeOf(place);
  return places;
}

const std::string& GoroutineReader::CreatorAt(uint64_t go_pc) {
  static const std::string kNone;
  const auto known = creators_.find(go_pc);
  if (known != creators_.end()) return known->second;
  if (is_full() || is_late()) return kNone;
  auto entry = creators_.try_emplace(go_pc).first;
  if (go_pc != 0) {
    const std::vector<GoPlace> places = binary_.Places(go_pc - bias_ - 1);
    // The runtime's traceback names the function whose code it is, and the line that was inlined there.
    if (!places.empty() && IsShown(places.back(), {}, false)) {
      entry->second =
          places.back().function.str() + " at " + BaseName(places.front().file) + ":" + std::to_string(places.front().line);
    }
  }
  used_bytes_ += sizeof(*entry) + entry->second.size();
  return entry->second;
}

// runtime.isSystemGoroutine: the runtime's tracebacks leave these out.
bool GoroutineReader::IsSystem(const Goroutine& goroutine, std::span<const GoFrame> frames) {
  const auto [known, is_new] = starts_.try_emplace(goroutine.start_pc, Start::kProgram);
  if (is_new) known->second = StartAt(goroutine.start_pc);
  if (known->second != Start::kCallsProgram) return known->second == Start::kRuntime;
  return std::none_of(frames.begin(), frames.end(), [this](const GoFrame& frame) {
    const std::vector<GoPlace>& places = PlacesAt(frame);
    return std::any_of(places.begin(), places.end(),
                       [](const GoPlace& place) { return !place.function.str().starts_with("runtime."); });
  });
}

GoroutineReader::Start GoroutineReader::StartAt(uint64_t start_pc) const {
  const std::optional<GoFunction> start = binary_.FindFunction(start_pc - bias_);
  if (!start || !start->name.starts_with("runtime.")) return Start::kProgram;
  if (start->name == "runtime.main" || start->name == "runtime.corostart" || start->name == "runtime.handleAsyncEvent") {
    return Start::kProgram;
  }
  return CallsUserCodeByDesign(start->name) ? Start::kCallsProgram : Start::kRuntime;
}

// g.m tells the thread, as long as m.curg tells the goroutine.
void GoroutineReader::FindThreads() {
  const auto& at = binary_.layout().m;
  MemoryBatch threads;
  for (const Running& running : on_threads_) {
    threads.Add(running.goroutine.m_avma + at.procid, 8);
    threads.Add(running.goroutine.m_avma + at.curg, 8);
  }
  threads.Read(*input_.memory);
  for (size_t i = 0; i < on_threads_.size(); ++i) {
    const std::span<const uint8_t> procid = threads.Bytes(2 * i), curg = threads.Bytes(2 * i + 1);
    if (procid.empty() || curg.empty() || Load<uint64_t>(curg, 0) != on_threads_[i].goroutine.g_avma) continue;
    const auto tid = Load<uint64_t>(procid, 0);
    if (tid == 0 || tid > 0x7fffffff) continue;
    facts_->tasks[on_threads_[i].task].tid = static_cast<int32_t>(tid);
    by_tid_.emplace(static_cast<int32_t>(tid), i);
  }
}

void GoroutineReader::AddThreads() {
  for (const ThreadCapture& thread : input_.capture.threads) {
    if (thread.has_stack) AddThread(thread);
  }
  if (called_by_c_ > 0) {
    facts_->notes.push_back("Go was called by C in " + std::to_string(called_by_c_) +
                            " threads: the C functions, which lie on another stack, were not found and are not shown");
  }
}

// As if it were copied now: words that were left out of the copy must not be addresses of code now.
bool GoroutineReader::HasStackStill(const ThreadCapture& thread) const {
  const uint64_t start_avma = thread.registers.value[Registers::kRsp];
  if (!thread.stack.Read(start_avma)) return false;
  auto bytes =
      input_.memory->ReadMemory(start_avma, std::min(thread.stack.EndOfPart(start_avma) - start_avma, kMaxStackBytes));
  if (!bytes) return false;
  for (size_t i = 0; i + 8 <= bytes->size(); i += 8) {
    const uint64_t copied = thread.stack.Read(start_avma + i).value_or(0), now = Load<uint64_t>(*bytes, i);
    if (copied == now) continue;
    const Mapping* mapping = copied != 0 ? nullptr : input_.capture.map->Find(now);
    if (copied != 0 || (mapping != nullptr && mapping->executable)) return false;
  }
  return true;
}

// Reads the goroutine anew: it may have moved since it was read for the list.
std::optional<int32_t> GoroutineReader::StackNow(const Goroutine& goroutine) {
  GoroutineLook look(binary_, bias_, *input_.memory, input_.deadline_ns);
  look.Look({&goroutine.g_avma, 1});
  if (look.seen().empty() || look.seen()[0].sight != GoroutineLook::Sight::kStill) return std::nullopt;
  const GoroutineLook::Seen& now = look.seen()[0];
  if (now.goroutine.status != kGoSyscall || now.goroutine.m_avma != goroutine.m_avma || now.goroutine.id != goroutine.id) {
    return std::nullopt;
  }
  const int32_t number = StackOf(look.FramesOf(now), now.end);
  return number < 0 ? std::nullopt : std::optional(number);
}

// Adds the goroutine that called C. The functions of C lie on the thread's own stack, which ends where Go switched to it.
// The goroutine is read later than the thread was captured. Both were so at one moment if the thread sleeps in the same
// place from before the read until after it. A thread that runs is left as it is.
void GoroutineReader::AddCallerOfC(const ThreadCapture& thread) {
  const auto found = by_tid_.find(thread.tid);
  if (!thread.call || found == by_tid_.end() || is_late()) return;
  const auto before = input_.memory->LookAt(thread.tid);
  if (!before || before->state != 'S' || before->run_count == 0 || !HasStackStill(thread)) return;
  const std::optional<int32_t> number = StackNow(on_threads_[found->second].goroutine);
  const auto after = input_.memory->LookAt(thread.tid);
  if (!number || !after || after->run_count != before->run_count) return;
  ManagedStack caller = facts_->task_stacks[static_cast<size_t>(*number)];
  // Beyond all that the thread's own stack holds.
  for (ManagedFrame& frame : caller.frames) frame.anchor_avma = ~uint64_t{0};
  facts_->threads[thread.tid].stacks.push_back(std::move(caller));
}

void GoroutineReader::AddThread(const ThreadCapture& thread) {
  auto read = [&](uint64_t avma) { return thread.stack.Read(avma); };
  const GoFrame innermost{thread.registers.value[Registers::kRip], thread.registers.value[Registers::kRsp], true};
  std::vector<GoFrame> frames;
  const GoWalkEnd end = walker_.Walk(innermost, read, &frames);
  if (frames.empty()) return AddCallerOfC(thread);
  ManagedThread& facts = facts_->threads[thread.tid];
  if (IsCalledByC(binary_, bias_, frames)) {
    if (auto callback = FindCallbackFrames(binary_, bias_, thread, *input_.capture.map, frames)) {
      facts.jit_frames = std::move(callback->frames);
      frames.resize(callback->go_frame_count);
    } else {
      ++called_by_c_;
    }
  }
  ManagedStack stack;
  stack.language = Language::kGo;
  stack.problem = WhyMissing(end);
  stack.frames = Name(frames, true, &stack.problem);
  facts.stacks.push_back(std::move(stack));
}

}  // namespace stackd
