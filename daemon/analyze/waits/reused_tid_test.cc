#include "daemon/analyze/waits/reused_tid.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/testing/hang_scene.h"

namespace stackd {
namespace {

using testing::HasSubstr;
using Finding = v1::Finding;
using Wait = v1::Wait;

constexpr uint64_t kLock = 0x5000;

// Thread 102 waits for a mutex with the number of 101, which reads; both have been seen by hang detection.
class ReusedTidTest : public testing::Test {
 protected:
  ReusedTidTest() {
    scene_.AddThread(101, "young", {"read@libc.so.6", "Serve", "start_thread@libc.so.6"});
    scene_.SetCall(101, SYS_read, {5});
    scene_.AddLocker(102, "waiter", "Work", kLock);
    scene_.AddMutex(kLock, 101);
  }

  HangScene scene_;
};

TEST_F(ReusedTidTest, AThreadThatBeganWhileAnotherWaitedHasNotTakenTheLock) {
  scene_.captured(101).absent_ns = 5'000;
  scene_.captured(102).unmoved_ns = 5'000;
  scene_.Explain();
  EXPECT_EQ(scene_.wait(102).owner(), Wait::NOT_KNOWN);
  EXPECT_EQ(scene_.wait(102).owner_tid(), 0);
  EXPECT_THAT(scene_.wait(102).explanation(),
              HasSubstr("owner unknown: it names thread young (tid 101), which began when another thread waited"));
  const Finding finding = scene_.Finding(Finding::OWNER_UNKNOWN);
  EXPECT_EQ(finding.severity(), Finding::SUSPICIOUS);
  EXPECT_THAT(finding.tids(), testing::ElementsAre(102));
}

TEST_F(ReusedTidTest, AThreadThatWasThereBeforeMayHaveTheLock) {
  scene_.captured(101).absent_ns = 5'001;
  scene_.captured(102).unmoved_ns = 5'000;
  scene_.Explain();
  EXPECT_EQ(scene_.wait(102).owner(), Wait::KNOWN);
  EXPECT_EQ(scene_.wait(102).owner_tid(), 101);
}

TEST_F(ReusedTidTest, WithoutHangDetectionTheWordIsBelieved) {
  scene_.captured(102).unmoved_ns = 5'000;
  scene_.Explain();
  EXPECT_EQ(scene_.wait(102).owner_tid(), 101);
}

TEST_F(ReusedTidTest, WhatOneWaiterTellsHoldsForAll) {
  scene_.AddLocker(103, "late", "Work", kLock);
  scene_.captured(101).absent_ns = 5'000;
  scene_.captured(102).unmoved_ns = 60'000;
  scene_.Explain();
  EXPECT_EQ(scene_.wait(103).owner(), Wait::NOT_KNOWN);
}

TEST_F(ReusedTidTest, AThreadWithTheNumberOfAnOwnerThatEndedWaitsNotForItself) {
  HangScene scene;
  scene.AddLocker(101, "young", "Work", kLock);
  scene.AddLocker(102, "waiter", "Work", kLock);
  scene.AddMutex(kLock, 101);
  scene.captured(101).absent_ns = 5'000;
  scene.captured(102).unmoved_ns = 6'000;
  scene.Explain();
  EXPECT_EQ(scene.Finding(Finding::SELF_DEADLOCK).kind(), Finding::KIND_UNSPECIFIED);
  EXPECT_EQ(scene.wait(101).owner(), Wait::NOT_KNOWN);
}

// Readers wait for as long as writers come.
TEST_F(ReusedTidTest, AWriterThatBeganLaterMayHaveAnRwlock) {
  HangScene scene;
  scene.AddThread(101, "writer", {"read@libc.so.6", "Serve", "start_thread@libc.so.6"});
  scene.SetCall(101, SYS_read, {5});
  scene.AddThread(102, "reader", {"futex_wait@libc.so.6", "___pthread_rwlock_rdlock@libc.so.6", "Work"});
  scene.SetFutexCall(102, kLock);
  scene.AddWord(kLock, 3).rwlock = GlibcRwlock{.avma = kLock, .write_locked = true, .writer_tid = 101};
  scene.captured(101).absent_ns = 5'000;
  scene.captured(102).unmoved_ns = 6'000;
  scene.Explain();
  EXPECT_EQ(scene.wait(102).owner_tid(), 101);
}

}  // namespace
}  // namespace stackd
