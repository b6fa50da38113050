// Who is told of each dump that is stored.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "stackd/v1/stackd.pb.h"

namespace stackd {

// Thread-safe.
class DumpWatchers {
 public:
  using SharedDump = std::shared_ptr<const v1::Dump>;
  using Watcher = std::function<void(SharedDump)>;

  // Calls `watcher` with each dump until the returned handle is destroyed, which may be later than this.
  std::shared_ptr<void> Add(Watcher watcher) {
    auto entry = std::make_shared<Watcher>(std::move(watcher));
    {
      std::lock_guard lock(list_->mutex);
      list_->watchers.push_back(entry);
    }
    return std::shared_ptr<void>(entry.get(), [entry, weak = std::weak_ptr<List>(list_)](void*) {
      const std::shared_ptr<List> list = weak.lock();
      if (list == nullptr) return;
      std::lock_guard lock(list->mutex);
      std::erase(list->watchers, entry);
    });
  }

  void Notify(const SharedDump& dump) const {
    std::unique_lock lock(list_->mutex);
    const auto current = list_->watchers;
    lock.unlock();
    // Called without the lock, so that a watcher may end its own watching.
    for (const auto& watcher : current) (*watcher)(dump);
  }

 private:
  struct List {
    std::mutex mutex;
    std::vector<std::shared_ptr<Watcher>> watchers;
  };
  const std::shared_ptr<List> list_ = std::make_shared<List>();
};

}  // namespace stackd
