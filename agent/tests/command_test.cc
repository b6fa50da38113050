extern "C" {
#include "agent/dump/command.h"
}

#include <errno.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

namespace stackd {
namespace {

constexpr uint64_t kLongNs = 20'000'000'000;

// A ring in which no reader makes room.
class JobTest : public testing::Test {
 protected:
  JobTest() {
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets_), 0);
    job_.ring = &ring_;
    job_.seq = 7;
    job_.socket_fd = sockets_[0];
    job_.deadline_ns = stackd_monotonic_ns() + kLongNs;
  }
  ~JobTest() override {
    close(sockets_[0]);
    close(sockets_[1]);
  }

  void* Begin() {
    stackd_ring_writer writer;
    return stackd_job_begin_record(&job_, &writer, STACKD_RECORD_WAIT, sizeof(stackd_wait_record));
  }

  stackd_ring_header header_{};
  const stackd_ring ring_{&header_, 1, 1};
  int sockets_[2];
  uint32_t hurry_ = 0;
  stackd_job job_{.is_to_hurry = &hurry_};
};

TEST_F(JobTest, RoomInTheRingOfADaemonThatIsGoneIsNotWaitedFor) {
  const uint64_t begin_ns = stackd_monotonic_ns();
  shutdown(sockets_[1], SHUT_RDWR);
  EXPECT_EQ(Begin(), nullptr);
  EXPECT_LT(stackd_monotonic_ns() - begin_ns, kLongNs / 4);
  EXPECT_TRUE(job_.abandoned);
}

TEST_F(JobTest, RoomIsWaitedForUntilSoonAfterTheDeadline) {
  const uint64_t begin_ns = stackd_monotonic_ns();
  job_.deadline_ns = begin_ns + 20'000'000;
  EXPECT_EQ(Begin(), nullptr);
  EXPECT_GE(stackd_monotonic_ns(), job_.deadline_ns);
  EXPECT_LT(stackd_monotonic_ns() - begin_ns, kLongNs / 4);
}

TEST_F(JobTest, AnErrorOfOneCommandIsNoneOfTheNext) {
  stackd_job_publish_done(&job_, -EMFILE);
  EXPECT_EQ(header_.failure, -EMFILE);
  EXPECT_EQ(header_.done_seq, 7u);
  job_.seq = 8;
  stackd_job_publish_done(&job_, 0);
  EXPECT_EQ(header_.failure, 0);
  EXPECT_EQ(header_.done_seq, 8u);
}

}  // namespace
}  // namespace stackd
