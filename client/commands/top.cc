#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "client/commands/commands.h"
#include "client/commands/top_screen.h"
#include "client/exit_code.h"
#include "client/output.h"
#include "client/terminal.h"
#include "daemon/base/clock.h"
#include "daemon/export/printable.h"

namespace stackd {
namespace {

constexpr char kReversed[] = "\x1b[7m";
constexpr char kRed[] = "\x1b[31m";
constexpr char kYellow[] = "\x1b[33m";
constexpr char kBold[] = "\x1b[1m";
constexpr char kPlain[] = "\x1b[0m";

Result<Look> LookNow(Api& api, const std::string& filter) {
  auto processes = AllProcesses(api, filter);
  if (!processes) return std::unexpected(processes.error());
  return Look{.processes = std::move(*processes), .at_ns = MonotonicNs()};
}

// Where a thread that calls the daemon leaves the last answer for the one that obeys keys.
template <typename Answer>
class Mailbox {
 public:
  void Put(Result<Answer> answer) {
    {
      std::lock_guard lock(mutex_);
      answer_ = std::move(answer);
    }
    const uint64_t one = 1;
    (void)!write(event_.get(), &one, sizeof(one));
  }
  std::optional<Result<Answer>> Take() {
    uint64_t count;
    (void)!read(event_.get(), &count, sizeof(count));
    std::lock_guard lock(mutex_);
    return std::exchange(answer_, std::nullopt);
  }
  int event_fd() const { return event_.get(); }

 private:
  const Fd event_{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  std::mutex mutex_;
  std::optional<Result<Answer>> answer_;
};

// A dump that was asked for, in place of the list.
struct DumpView {
  std::string title;
  std::vector<std::string> lines;
  size_t first = 0;
  std::shared_ptr<Mailbox<v1::Dump>> answer = std::make_shared<Mailbox<v1::Dump>>();
};

class Top {
 public:
  // `api` must live until the program ends: a call may be under way then.
  Top(Api* api, const Options& options, Terminal terminal) : api_(api), options_(options), terminal_(std::move(terminal)) {}

  int Run() {
    std::thread([api = api_, options = options_, looks = looks_] {
      while (true) {
        const int64_t next_ns = MonotonicNs() + options.every_ms * kNsPerMs;
        looks->Put(LookNow(*api, options.filter));
        std::this_thread::sleep_for(std::chrono::nanoseconds(std::max<int64_t>(next_ns - MonotonicNs(), 0)));
      }
    }).detach();
    while (true) {
      TakeAnswers();
      if (!terminal_.Show(dump_ ? DumpLines() : ListLines())) return kFailure;
      const Key key =
          terminal_.Await(MonotonicNs() + kNsPerSecond, {looks_->event_fd(), dump_ ? dump_->answer->event_fd() : -1});
      if (key == Key::kQuit && !dump_) return kOk;
      dump_ ? ObeyInDump(key) : ObeyInList(key);
    }
  }

 private:
  void TakeAnswers() {
    if (auto look = looks_->Take()) {
      failure_ = *look ? "" : Printable(look->error().message);
      if (*look) {
        rows_ = TopRows(look_, **look);
        look_ = std::move(**look);
        FollowSelected();
      }
    }
    auto dump = dump_ ? dump_->answer->Take() : std::nullopt;
    if (!dump) return;
    dump_->lines.clear();
    if (!*dump) {
      dump_->lines.push_back(Printable(dump->error().message));
      return;
    }
    dump_->title = (*dump)->name();
    for (const std::string& line : (*dump)->lines()) dump_->lines.push_back(Printable(line));
    if ((*dump)->omitted_group_count() > 0) {
      dump_->lines.push_back("(" + std::to_string((*dump)->omitted_group_count()) + " more groups: stackctl show " +
                             dump_->title + ")");
    }
  }

  // Rows change their places; the process that was chosen stays chosen.
  void FollowSelected() {
    const auto found = std::ranges::find(rows_, selected_, [](const TopRow& row) { return row.process.name(); });
    if (found != rows_.end()) cursor_ = static_cast<size_t>(found - rows_.begin());
    Select(cursor_);
  }

  void Select(size_t cursor) {
    cursor_ = rows_.empty() ? 0 : std::min(cursor, rows_.size() - 1);
    first_ = FirstShown(first_, cursor_, rows_.size(), BodyHeight());
    selected_ = rows_.empty() ? "" : rows_[cursor_].process.name();
  }

  void ObeyInList(Key key) {
    if (key == Key::kEnter && !rows_.empty()) return Dump(rows_[cursor_].process);
    Select(Moved(cursor_, key, rows_.size(), BodyHeight()));
  }

  void ObeyInDump(Key key) {
    if (key == Key::kQuit || key == Key::kBack) return dump_.reset();
    const size_t stops = dump_->lines.size() > BodyHeight() ? dump_->lines.size() - BodyHeight() + 1 : 1;
    dump_->first = Moved(dump_->first, key, stops, BodyHeight());
  }

  void Dump(const v1::Process& process) {
    dump_.emplace();
    dump_->title = process.name();
    dump_->lines = {"taking the stacks of " + Printable(process.display_name()) + " ..."};
    v1::CreateDumpRequest request;
    request.set_process(process.name());
    request.set_view(v1::DUMP_VIEW_TEXT);
    std::thread([api = api_, request, answer = dump_->answer] { answer->Put(api->CreateDump(request)); }).detach();
  }

  // Without head, column names and foot.
  size_t BodyHeight() const {
    constexpr size_t kOthers = 4;
    const size_t lines = terminal_.size().lines;
    return lines > kOthers ? lines - kOthers : 1;
  }

  std::string Marked(const char* mark, const std::string& text) const {
    return has_colour_ || mark == kReversed ? mark + text + kPlain : text;
  }

  std::vector<std::string> ListLines() const {
    const size_t columns = terminal_.size().columns;
    const auto clipped = [columns](const std::string& text) { return Clipped(text, columns); };
    std::vector<std::string> lines{clipped("stackd at " + Printable(api_->address()) + "   " + TopSummary(rows_)),
                                   Marked(kRed, clipped(failure_))};
    const std::vector<std::string> table = TopTable(rows_);
    lines.push_back(Marked(kBold, clipped(table[0])));
    for (size_t i = first_; i < std::min(first_ + BodyHeight(), rows_.size()); ++i) {
      std::string line = clipped(table[i + 1]);
      if (i == cursor_) line.resize(line.size() + columns - std::min(columns, Clipped(line, columns).size()), ' ');
      const auto health = rows_[i].process.health();
      const char* mark = i == cursor_                        ? kReversed
                         : health == v1::Process::HUNG       ? kRed
                         : health == v1::Process::SUSPICIOUS ? kYellow
                                                             : "";
      lines.push_back(Marked(mark, line));
    }
    if (rows_.empty() && failure_.empty()) lines.push_back("no process is connected");
    lines.resize(3 + BodyHeight());
    lines.push_back(clipped("up and down choose, Enter takes a dump, q ends"));
    return lines;
  }

  std::vector<std::string> DumpLines() const {
    const size_t columns = terminal_.size().columns;
    std::vector<std::string> lines{Marked(kBold, Clipped(dump_->title, columns)), "", ""};
    const size_t end = std::min(dump_->first + BodyHeight(), dump_->lines.size());
    for (size_t i = dump_->first; i < end; ++i) lines.push_back(Clipped(dump_->lines[i], columns));
    lines.resize(3 + BodyHeight());
    lines.push_back(Clipped("line " + std::to_string(end) + " of " + std::to_string(dump_->lines.size()) +
                                "; up, down and page keys move, q goes back",
                            columns));
    return lines;
  }

  Api* const api_;
  const Options options_;
  Terminal terminal_;
  const bool has_colour_ = HasColour();
  const std::shared_ptr<Mailbox<Look>> looks_ = std::make_shared<Mailbox<Look>>();
  Look look_;
  std::vector<TopRow> rows_;
  std::string failure_;   // why there is nothing newer; empty: nothing is wrong
  std::string selected_;  // name of the process below the cursor
  size_t cursor_ = 0;
  size_t first_ = 0;
  std::optional<DumpView> dump_;
};

int PrintOnce(Api& api, const Options& options) {
  auto look = LookNow(api, options.filter);
  if (!look) return Failed(look.error());
  const std::vector<TopRow> rows = TopRows({}, *look);
  std::string text = TopSummary(rows) + "\n";
  for (const std::string& line : TopTable(rows)) text += line + "\n";
  return Print(text) ? kOk : kFailure;
}

}  // namespace

int RunTop(Api& api, const Options& options) {
  if (options.json) {
    auto look = LookNow(api, options.filter);
    if (!look) return Failed(look.error());
    v1::ListProcessesResponse all;
    for (const TopRow& row : TopRows({}, *look)) *all.add_processes() = row.process;
    return Print(Json(all)) ? kOk : kFailure;
  }
  if (options.once || isatty(STDOUT_FILENO) == 0) return PrintOnce(api, options);
  auto terminal = Terminal::Open();
  if (!terminal) return Failed(terminal.error());
  return Top(&api, options, std::move(*terminal)).Run();
}

}  // namespace stackd
