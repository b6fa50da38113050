#include "daemon/serve/service/watch_dumps.h"

#include <deque>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "daemon/serve/requests/dump_view.h"
#include "daemon/serve/requests/rpc_status.h"

namespace stackd {
namespace {

using Reactor = grpc::ServerWriteReactor<v1::WatchDumpsResponse>;

constexpr size_t kMaxWatches = 64;
constexpr int32_t kPageSize = 1000;

// The last part of a dump's name, which sorts by time.
std::string_view DumpId(std::string_view name) { return name.substr(name.rfind('/') + 1); }

bool IsOfParent(const v1::Dump& dump, const std::string& parent) {
  return parent.empty() || parent == "processes/-" || dump.name().starts_with(parent + "/dumps/");
}

struct Backlog {
  std::deque<v1::Dump> dumps;  // oldest first
  bool more = false;           // newer ones were left out
};

// The oldest `limit` dumps that were stored after the dump named `after`, which may be gone by now.
Result<Backlog> DumpsAfter(const DumpStore& store, const std::string& parent, const std::string& after, size_t limit) {
  const bool is_stored = store.Get(after).has_value();
  DumpQuery query{.parent = parent, .page_size = kPageSize};
  Backlog backlog;
  while (true) {
    Result<DumpPage> page = store.List(query);
    if (!page) return std::unexpected(page.error());
    for (v1::Dump& dump : page->dumps) {
      bool reached = is_stored ? dump.name() == after : DumpId(dump.name()) <= DumpId(after);
      if (reached) return backlog;
      backlog.dumps.push_front(std::move(dump));
      if (backlog.dumps.size() > limit) {
        backlog.dumps.pop_back();
        backlog.more = true;
      }
    }
    if (page->next_page_token.empty()) return backlog;
    query.page_token = page->next_page_token;
  }
}

class FailedCall : public Reactor {
 public:
  FailedCall(grpc::Status status, DumpWatchers::Done done) : status_(std::move(status)), done_(std::move(done)) {
    Finish(status_);
  }
  void OnDone() override {
    done_(status_);
    delete this;
  }

 private:
  const grpc::Status status_;
  const DumpWatchers::Done done_;
};

}  // namespace

// One stream: a bounded queue, and at most one write under way.
//
// Called by the pipeline (Push), by gRPC (Written, Cancel) and at the end of the daemon (End). gRPC may call back from
// within StartWrite and Finish, so these are called without the lock.
class DumpWatch {
 public:
  DumpWatch(Reactor* reactor, std::string parent, size_t queue_limit)
      : reactor_(reactor), parent_(std::move(parent)), queue_limit_(queue_limit) {}

  void Push(const v1::Dump& dump) {
    if (!IsOfParent(dump, parent_)) return;
    std::unique_lock lock(mutex_);
    Add(BasicView(dump));
    Advance(std::move(lock));
  }

  // Puts what was stored before this watch in front of what came since; writing begins.
  void Begin(Backlog backlog) {
    std::unique_lock lock(mutex_);
    std::set<std::string> known;
    std::deque<v1::Dump> live = std::exchange(queue_, {});
    for (v1::Dump& dump : backlog.dumps) {
      known.insert(dump.name());
      Add(std::move(dump));
    }
    if (backlog.more) EndForSlowness();
    for (v1::Dump& dump : live) {
      if (!known.contains(dump.name())) Add(std::move(dump));
    }
    busy_ = false;
    Advance(std::move(lock));
  }

  void Written(bool ok) {
    std::unique_lock lock(mutex_);
    busy_ = false;
    if (!ok) EndNow(grpc::Status::CANCELLED);
    Advance(std::move(lock));
  }

  grpc::Status final_status() {
    std::lock_guard lock(mutex_);
    return status_;
  }

  void End(grpc::Status status) {
    std::unique_lock lock(mutex_);
    EndNow(std::move(status));
    Advance(std::move(lock));
  }

 private:
  void Add(v1::Dump dump) {
    if (ending_) return;
    if (queue_.size() >= queue_limit_) {
      EndForSlowness();
    } else {
      queue_.push_back(std::move(dump));
    }
  }

  // What is queued is still sent, and says from where to go on.
  void EndForSlowness() {
    ending_ = true;
    std::string last = queue_.empty() ? "" : queue_.back().name();
    status_ = ToGrpcStatus(
        {Code::kResourceExhausted,
         "dumps came faster than this stream was read; call again with \"after\": \"" + last + "\"", "WATCH_TOO_SLOW"},
        {.metadata = {{"after", last}}});
  }

  void EndNow(grpc::Status status) {
    if (!ending_) status_ = std::move(status);
    ending_ = true;
    queue_.clear();
  }

  void Advance(std::unique_lock<std::mutex> lock) {
    if (busy_ || finished_) return;
    if (!queue_.empty()) {
      busy_ = true;
      *response_.mutable_dump() = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      reactor_->StartWrite(&response_);
    } else if (ending_) {
      finished_ = true;
      grpc::Status status = status_;
      lock.unlock();
      reactor_->Finish(std::move(status));
    }
  }

  // Valid until Finish was called.
  Reactor* const reactor_;
  const std::string parent_;
  const size_t queue_limit_;

  std::mutex mutex_;
  std::deque<v1::Dump> queue_;
  v1::WatchDumpsResponse response_;
  bool busy_ = true;  // until Begin
  bool ending_ = false;
  bool finished_ = false;
  grpc::Status status_;
};

namespace {

class WatchCall : public Reactor {
 public:
  WatchCall(std::string parent, size_t queue_limit, DumpWatchers::Done done)
      : watch_(std::make_shared<DumpWatch>(this, std::move(parent), queue_limit)), done_(std::move(done)) {}

  void Subscribe(Pipeline* pipeline) {
    subscription_ = pipeline->Watch([watch = watch_](std::shared_ptr<const v1::Dump> dump) { watch->Push(*dump); });
  }

  const std::shared_ptr<DumpWatch>& watch() const { return watch_; }

  void OnWriteDone(bool ok) override { watch_->Written(ok); }
  void OnCancel() override { watch_->End(grpc::Status::CANCELLED); }
  void OnDone() override {
    done_(watch_->final_status());
    delete this;
  }

 private:
  std::shared_ptr<DumpWatch> watch_;
  const DumpWatchers::Done done_;
  std::shared_ptr<void> subscription_;
};

Status BadName(const std::string& field, const std::string& form) {
  return {Code::kInvalidArgument, "\"" + field + "\" must be empty or like " + form, "BAD_NAME"};
}

}  // namespace

DumpWatchers::DumpWatchers(Pipeline* pipeline, DumpStore* store, size_t queue_limit)
    : pipeline_(pipeline), store_(store), queue_limit_(queue_limit) {}

bool DumpWatchers::Add(const std::shared_ptr<DumpWatch>& watch) {
  std::lock_guard lock(mutex_);
  std::erase_if(watches_, [](const auto& other) { return other.expired(); });
  if (ended_ || watches_.size() >= kMaxWatches) return false;
  watches_.push_back(watch);
  return true;
}

Reactor* DumpWatchers::Start(const v1::WatchDumpsRequest& request, Done done) {
  const auto failed = [&](const Status& status, const ErrorSubject& subject = {}) {
    return new FailedCall(ToGrpcStatus(status, subject), std::move(done));
  };
  if (!request.parent().empty() && !request.parent().starts_with("processes/")) {
    return failed(BadName("parent", "processes/7-123"), {.field = "parent"});
  }
  if (!request.after().empty() && request.after().find("/dumps/") == std::string::npos) {
    return failed(BadName("after", "processes/7-123/dumps/20261121T031415926Z-1"), {.field = "after"});
  }
  auto call = std::make_unique<WatchCall>(request.parent(), queue_limit_, done);
  if (!Add(call->watch())) {
    return failed({Code::kResourceExhausted, "too many calls watch dumps already", "TOO_MANY_WATCHES"});
  }
  // Before the backlog is read, so that no dump falls between the two.
  call->Subscribe(pipeline_);
  Backlog backlog;
  if (!request.after().empty()) {
    Result<Backlog> found = DumpsAfter(*store_, request.parent(), request.after(), queue_limit_);
    if (!found) {
      return failed({Code::kUnavailable, found.error().message, "STORE_UNAVAILABLE"});
    }
    backlog = std::move(*found);
  }
  WatchCall* reactor = call.release();
  std::shared_ptr<DumpWatch> watch = reactor->watch();
  // Headers tell the caller that from now on it misses nothing.
  reactor->StartSendInitialMetadata();
  watch->Begin(std::move(backlog));
  return reactor;
}

void DumpWatchers::EndAll() {
  std::vector<std::weak_ptr<DumpWatch>> watches;
  {
    std::lock_guard lock(mutex_);
    ended_ = true;
    watches.swap(watches_);
  }
  for (const auto& weak : watches) {
    if (auto watch = weak.lock()) watch->End({grpc::StatusCode::UNAVAILABLE, "stackd is shutting down"});
  }
}

}  // namespace stackd
