// A Collector that hands crashes to its test.
#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "daemon/collect/testing/collector_fixture.h"

namespace stackd {

class CrashTest : public CollectorFixture {
 protected:
  // The handler uses what is below.
  ~CrashTest() override { collector_.reset(); }

  void Handle() {
    collector_->OnCrash([this](std::shared_ptr<Capture> capture, const std::function<void()>& release) {
      std::unique_lock lock(mutex_);
      crashes_.push_back(std::move(capture));
      changed_.wait(lock, [this] { return !hold_; });
      if (stores_) release();
    });
  }
  void StartAndHandle() {
    ASSERT_NO_FATAL_FAILURE(Start());
    Handle();
  }

  std::vector<std::shared_ptr<Capture>> Crashes() {
    std::lock_guard lock(mutex_);
    return crashes_;
  }
  std::shared_ptr<Capture> AwaitCrash(size_t number = 1) {
    Eventually([&] { return Crashes().size() >= number; });
    auto crashes = Crashes();
    return crashes.size() >= number ? crashes[number - 1] : nullptr;
  }
  void LetGo() {
    std::lock_guard lock(mutex_);
    hold_ = false;
    changed_.notify_all();
  }

  std::vector<std::string> SpoolNames() {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(dir_ + "/spool")) names.push_back(entry.path().filename());
    return names;
  }
  std::string SpoolPath(const std::string& name) { return dir_ + "/spool/" + name; }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::shared_ptr<Capture>> crashes_;
  bool hold_ = false;
  bool stores_ = true;
};

}  // namespace stackd
