#include "daemon/collect/task_tables.h"

#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "daemon/base/clock.h"

namespace stackd {
namespace {

Fd File(const std::string& text) {
  Fd file(memfd_create("tasks", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(write(file.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  return file;
}

// A process that answers as it is told, at the other end of a socket.
class TaskTablesTest : public testing::Test {
 protected:
  TaskTablesTest() {
    int ends[2] = {-1, -1};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    daemon_ = Fd(ends[0]);
    process_ = Fd(ends[1]);
    tables_.emplace(daemon_.get());
  }

  stackd_describe_tasks Asked() {
    stackd_describe_tasks asked{};
    EXPECT_EQ(recv(process_.get(), &asked, sizeof(asked), 0), static_cast<ssize_t>(sizeof(asked)));
    EXPECT_EQ(asked.header.type, STACKD_MSG_DESCRIBE_TASKS);
    return asked;
  }

  static ReceivedMessage Answer(uint32_t request_id, int32_t error, Fd file) {
    stackd_tasks tasks{};
    tasks.header = {STACKD_MSG_TASKS, sizeof(tasks)};
    tasks.request_id = request_id;
    tasks.error = error;
    ReceivedMessage message;
    message.bytes.assign(reinterpret_cast<const char*>(&tasks), reinterpret_cast<const char*>(&tasks + 1));
    if (file.valid()) message.fds.push_back(std::move(file));
    return message;
  }

  // `answer` is given the id of the question.
  Result<std::string> Ask(const std::function<void(uint32_t)>& answer, int64_t limit_ns = 10 * kNsPerSecond) {
    std::jthread process([&] { answer(Asked().request_id); });
    return tables_->Ask(MonotonicNs() + limit_ns / 2, MonotonicNs() + limit_ns);
  }

  void Tell(ReceivedMessage message) { tables_->OnAnswer(&message); }

  Fd daemon_, process_;
  std::optional<TaskTables> tables_;
};

TEST_F(TaskTablesTest, AreAskedForWhereThereAreTasks) {
  EXPECT_FALSE(tables_->has_tasks());
  tables_->OnHasTasks();
  EXPECT_TRUE(tables_->has_tasks());
  for (const char* text : {"a table", "", "another"}) {
    const auto table = Ask([&](uint32_t id) { Tell(Answer(id, 0, File(text))); });
    ASSERT_TRUE(table) << table.error().message;
    EXPECT_EQ(*table, text);
  }
}

TEST_F(TaskTablesTest, TellTheProcessHowLongItsTasksHave) {
  std::jthread daemon([&] { EXPECT_TRUE(tables_->Ask(MonotonicNs() + 51 * kNsPerMs, MonotonicNs() + 10 * kNsPerSecond)); });
  const stackd_describe_tasks asked = Asked();
  EXPECT_LE(asked.limit_ms, 51u);
  EXPECT_GT(asked.limit_ms, 0u);
  Tell(Answer(asked.request_id, 0, File("")));
  daemon.join();
  std::jthread patient([&] { EXPECT_TRUE(tables_->Ask(INT64_MAX, MonotonicNs() + 10 * kNsPerSecond)); });
  const stackd_describe_tasks longest = Asked();
  EXPECT_EQ(longest.limit_ms, STACKD_MAX_TASK_LIMIT_MS);
  Tell(Answer(longest.request_id, 0, File("")));
}

TEST_F(TaskTablesTest, SayWhyThereIsNone) {
  const auto refused = Ask([&](uint32_t id) { Tell(Answer(id, -ENODATA, Fd())); });
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message, strerror(ENODATA));
  const auto silent = Ask([](uint32_t) {}, 20 * kNsPerMs);
  ASSERT_FALSE(silent);
  EXPECT_EQ(silent.error().code, Code::kDeadlineExceeded);
}

TEST_F(TaskTablesTest, TakeNoAnswerThatMakesNoSense) {
  const auto fails = [&](const std::function<ReceivedMessage(uint32_t)>& answer) {
    return !Ask([&](uint32_t id) { Tell(answer(id)); });
  };
  EXPECT_TRUE(fails([](uint32_t id) { return Answer(id, 0, Fd()); }));
  EXPECT_TRUE(fails([](uint32_t id) { return Answer(id, 5, File("x")); }));
  EXPECT_TRUE(fails([](uint32_t id) { return Answer(id, INT32_MIN, File("x")); }));
  // What may keep its reader waiting stays where it is.
  ReceivedMessage device;
  EXPECT_TRUE(fails([&](uint32_t id) {
    device = Answer(id, 0, Fd(open("/dev/zero", O_RDONLY | O_CLOEXEC)));
    tables_->OnAnswer(&device);
    return ReceivedMessage();
  }));
  EXPECT_EQ(device.fds.size(), 1u);
  EXPECT_TRUE(fails([](uint32_t id) { return Answer(id, 0, Fd(open("/dev/zero", O_RDONLY | O_CLOEXEC))); }));
  EXPECT_TRUE(fails([](uint32_t id) {
    int ends[2] = {-1, -1};
    EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
    close(ends[1]);
    return Answer(id, 0, Fd(ends[0]));
  }));
  EXPECT_TRUE(fails([](uint32_t id) {
    Fd file = File("");
    EXPECT_EQ(ftruncate(file.get(), STACKD_MAX_TASK_TABLE_BYTES + 1), 0);
    return Answer(id, 0, std::move(file));
  }));
}

TEST_F(TaskTablesTest, WaitForTheAnswerToTheirOwnQuestion) {
  const auto table = Ask([&](uint32_t id) {
    Tell(Answer(id + 1, 0, File("of another")));
    Tell(Answer(0, 0, File("of none")));
    ReceivedMessage cut = Answer(id, 0, File("cut"));
    cut.bytes.resize(sizeof(stackd_message_header));
    Tell(std::move(cut));
    Tell(Answer(id, 0, File("its own")));
    Tell(Answer(id, 0, File("too late")));
  });
  ASSERT_TRUE(table);
  EXPECT_EQ(*table, "its own");
  Tell(Answer(1, 0, File("unasked")));
}

TEST_F(TaskTablesTest, EndWithTheConnection) {
  EXPECT_FALSE(Ask([&](uint32_t) { tables_->OnClosed(); }));
  EXPECT_FALSE(tables_->Ask(MonotonicNs() + kNsPerSecond, MonotonicNs() + kNsPerSecond));
}

TEST_F(TaskTablesTest, AreAskedForOneByOne) {
  std::jthread process([&] {
    for (int i = 0; i < 20; i++) {
      const uint32_t id = Asked().request_id;
      Tell(Answer(id, 0, File(std::to_string(id))));
    }
  });
  std::vector<std::jthread> dumps;
  for (int i = 0; i < 20; i++) {
    dumps.emplace_back([&] { EXPECT_TRUE(tables_->Ask(MonotonicNs() + kNsPerSecond, MonotonicNs() + 10 * kNsPerSecond)); });
  }
}

}  // namespace
}  // namespace stackd
