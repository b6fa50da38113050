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

constexpr size_t kMaxWatches = 64;
constexpr int32_t kPageSize = 1000;

// The last part of a dump's name, which sorts by time.
std::string_view DumpId(std::string_view name) { return name.substr(name.rfind('/') + 1); }

bool IsOfParent(const v1::Dump& dump, const std::string& parent) {
  return parent.empty() || parent == "processes/-" || dump.name().starts_with(parent + "/dumps/");
}

// The oldest `limit` dumps that were stored after the dump named `after`, which may be gone by now.
Result<DumpWatch::Backlog> DumpsAfter(const DumpStore& store, const std::string& parent, const std::string& after,
                                      size_t limit) {
  const bool is_stored = store.Get(after).has_value();
  DumpQuery query{.parent = parent, .page_size = kPageSize};
  DumpWatch::Backlog backlog;
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

}  // namespace

void DumpWatch::Push(const v1::Dump& dump) {
  if (!IsOfParent(dump, parent_)) return;
  std::unique_lock lock(mutex_);
  Add(BasicView(dump));
  Advance(std::move(lock));
}

void DumpWatch::Begin() {
  std::unique_lock lock(mutex_);
  std::set<std::string> known;
  std::deque<v1::Dump> live = std::exchange(queue_, {});
  for (v1::Dump& dump : backlog_.dumps) {
    known.insert(dump.name());
    Add(std::move(dump));
  }
  if (backlog_.more) EndForSlowness();
  for (v1::Dump& dump : live) {
    if (!known.contains(dump.name())) Add(std::move(dump));
  }
  backlog_ = {};
  busy_ = false;
  Advance(std::move(lock));
}

void DumpWatch::Written(bool ok) {
  std::unique_lock lock(mutex_);
  busy_ = false;
  if (!ok) EndNow(grpc::Status::CANCELLED);
  Advance(std::move(lock));
}

void DumpWatch::End(grpc::Status status) {
  std::unique_lock lock(mutex_);
  EndNow(std::move(status));
  Advance(std::move(lock));
}

void DumpWatch::Add(v1::Dump dump) {
  if (ending_) return;
  if (queue_.size() >= queue_limit_) {
    EndForSlowness();
  } else {
    queue_.push_back(std::move(dump));
  }
}

// Sends what is queued all the same, and says from where to go on.
void DumpWatch::EndForSlowness() {
  ending_ = true;
  std::string last = queue_.empty() ? "" : queue_.back().name();
  status_ = ToGrpcStatus(
      {Code::kResourceExhausted, "dumps came faster than this stream was read; call again with \"after\": \"" + last + "\"",
       "WATCH_TOO_SLOW"},
      {.metadata = {{"after", last}}});
}

void DumpWatch::EndNow(grpc::Status status) {
  if (!ending_) status_ = std::move(status);
  ending_ = true;
  queue_.clear();
}

void DumpWatch::Advance(std::unique_lock<std::mutex> lock) {
  if (busy_ || finished_) return;
  if (!queue_.empty()) {
    busy_ = true;
    *response_.mutable_dump() = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    stream_->Write(response_);
  } else if (ending_) {
    finished_ = true;
    grpc::Status status = status_;
    lock.unlock();
    stream_->Finish(std::move(status));
  }
}

namespace {

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

std::expected<std::shared_ptr<DumpWatch>, grpc::Status> DumpWatchers::Open(const v1::WatchDumpsRequest& request,
                                                                           DumpStream* stream) {
  const auto failed = [](const Status& status, const ErrorSubject& subject = {}) {
    return std::unexpected(ToGrpcStatus(status, subject));
  };
  if (!request.parent().empty() && !request.parent().starts_with("processes/")) {
    return failed(BadName("parent", "processes/7-123"), {.field = "parent"});
  }
  if (!request.after().empty() && request.after().find("/dumps/") == std::string::npos) {
    return failed(BadName("after", "processes/7-123/dumps/20261121T031415926Z-1"), {.field = "after"});
  }
  auto watch = std::make_shared<DumpWatch>(stream, request.parent(), queue_limit_);
  if (!Add(watch)) {
    return failed({Code::kResourceExhausted, "too many calls watch dumps already", "TOO_MANY_WATCHES"});
  }
  // Before the backlog is read, so that no dump falls between the two.
  watch->subscription_ = pipeline_->Watch([weak = std::weak_ptr(watch)](std::shared_ptr<const v1::Dump> dump) {
    if (const auto alive = weak.lock()) alive->Push(*dump);
  });
  if (!request.after().empty()) {
    Result<DumpWatch::Backlog> found = DumpsAfter(*store_, request.parent(), request.after(), queue_limit_);
    if (!found) return failed({Code::kUnavailable, found.error().message, "STORE_UNAVAILABLE"});
    watch->backlog_ = std::move(*found);
  }
  return watch;
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
