#include "daemon/managed/go/lock_code.h"

#include <gtest/gtest.h>

namespace stackd {
namespace {

TEST(GoLockCode, KnowsTheFunctionsOfLocksOfAllVersions) {
  for (const char* name : {"sync.(*Mutex).Lock", "sync.(*Mutex).lockSlow", "internal/sync.(*Mutex).lockSlow",
                           "sync.(*RWMutex).RLock", "sync.runtime_SemacquireRWMutexR", "sync.(*Mutex).TryLock"}) {
    EXPECT_TRUE(GoLockCode::IsLock(name)) << name;
    EXPECT_FALSE(GoLockCode::IsUnlock(name)) << name;
  }
  for (const char* name : {"sync.(*Mutex).Unlock", "internal/sync.(*Mutex).unlockSlow", "sync.(*RWMutex).rUnlockSlow"}) {
    EXPECT_TRUE(GoLockCode::IsUnlock(name)) << name;
    EXPECT_FALSE(GoLockCode::IsLock(name)) << name;
  }
  for (const char* name : {"sync.(*WaitGroup).Wait", "sync.(*Once).doSlow", "main.(*Mutex).Lock", "mysync.(*Mutex).Lock"}) {
    EXPECT_FALSE(GoLockCode::IsLock(name) || GoLockCode::IsUnlock(name)) << name;
  }
}

TEST(GoLockCode, KnowsGosOwnLibraryByTheFirstPartOfItsPaths) {
  for (const char* name : {"net/http.(*Server).Serve", "time.Sleep", "internal/poll.(*FD).Accept", "os/signal.loop"}) {
    EXPECT_TRUE(GoLockCode::IsStandard(name)) << name;
  }
  for (const char* name : {"main.main", "example.com/shop.Pay", "shop/net.Dial", "nets.Dial", "golang.org/x/net/http2.f"}) {
    EXPECT_FALSE(GoLockCode::IsStandard(name)) << name;
  }
}

}  // namespace
}  // namespace stackd
