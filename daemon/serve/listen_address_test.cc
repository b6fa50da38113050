#include "daemon/serve/listen_address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <fstream>

#include "daemon/base/fd.h"

namespace stackd {
namespace {

using testing::HasSubstr;

TEST(ListenAddress, TakesLoopbackOnly) {
  EXPECT_EQ(CheckListenAddress("127.0.0.1:0").value_or(""), "127.0.0.1:0");
  EXPECT_EQ(CheckListenAddress("localhost:0").value_or(""), "127.0.0.1:0");
  EXPECT_EQ(CheckListenAddress("127.9.9.9:0").value_or(""), "127.9.9.9:0");
  for (const char* listen : {"0.0.0.0:7443", "10.0.0.1:7443", "example.com:80", "[2001:db8::1]:1"}) {
    auto address = CheckListenAddress(listen);
    ASSERT_FALSE(address.has_value()) << listen;
    EXPECT_THAT(address.error().message,
                HasSubstr("only loopback addresses are served; mTLS for others is not available in this version"));
  }
}

TEST(ListenAddress, SaysHowToWriteOne) {
  for (const char* listen : {"7443", ":7443", "127.0.0.1", "127.0.0.1:x", "127.0.0.1:70000", "127.0.0.1:", "[zz]:1"}) {
    auto address = CheckListenAddress(listen);
    ASSERT_FALSE(address.has_value()) << listen;
    EXPECT_THAT(address.error().message, HasSubstr("write it like 127.0.0.1:7443"));
  }
}

TEST(ListenAddress, SaysThatThePortIsTaken) {
  Fd fd(socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  ASSERT_EQ(bind(fd.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(listen(fd.get(), 1), 0);
  getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size);
  auto checked = CheckListenAddress("127.0.0.1:" + std::to_string(ntohs(address.sin_port)));
  ASSERT_FALSE(checked.has_value());
  EXPECT_THAT(checked.error().message, HasSubstr("another program listens there"));
}

class SocketPathTest : public testing::Test {
 protected:
  void SetUp() override {
    char dir[] = "/tmp/stackd_socket_path_XXXXXX";
    ASSERT_NE(mkdtemp(dir), nullptr);
    dir_ = dir;
  }
  void TearDown() override {
    unlink((dir_ + "/api.sock").c_str());
    rmdir(dir_.c_str());
  }

  Fd Bind() {
    Fd fd(socket(AF_UNIX, SOCK_STREAM, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    strcpy(address.sun_path, (dir_ + "/api.sock").c_str());
    EXPECT_EQ(bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    return fd;
  }

  std::string dir_;
};

TEST_F(SocketPathTest, IsFineWhereNothingIs) { EXPECT_EQ(CheckSocketPath(dir_).value_or(""), dir_ + "/api.sock"); }

TEST_F(SocketPathTest, IsFineWhereADeadDaemonLeftOne) {
  Bind();
  EXPECT_TRUE(CheckSocketPath(dir_).has_value());
}

TEST_F(SocketPathTest, IsRefusedWhereADaemonListens) {
  Fd fd = Bind();
  ASSERT_EQ(listen(fd.get(), 1), 0);
  auto path = CheckSocketPath(dir_);
  ASSERT_FALSE(path.has_value());
  EXPECT_THAT(path.error().message, HasSubstr("another stackd serves"));
}

TEST_F(SocketPathTest, IsRefusedWhereAFileIs) {
  std::ofstream(dir_ + "/api.sock") << "precious";
  EXPECT_THAT(CheckSocketPath(dir_).error().message, HasSubstr("is not a socket"));
}

TEST_F(SocketPathTest, IsRefusedWhenItIsTooLong) {
  EXPECT_THAT(CheckSocketPath("/tmp/" + std::string(100, 'x')).error().message, HasSubstr("too long for a socket"));
}

}  // namespace
}  // namespace stackd
