#include "daemon/serve/net/listen_address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <fstream>

#include "daemon/base/fd.h"

namespace stackd {
namespace {

using testing::HasSubstr;

TEST(ListenAddress, WithoutTlsIsLoopbackOnly) {
  for (const char* listen : {"127.0.0.1:0", "localhost:0", "127.9.9.9:0", "[::1]:0"}) {
    EXPECT_TRUE(ListenAt("--listen", listen, /*has_tls=*/false).has_value()) << listen;
  }
  for (const char* listen : {"0.0.0.0:7443", "10.0.0.1:7443", "[2001:db8::1]:1", "[::]:7443"}) {
    auto there = ListenAt("--listen", listen, /*has_tls=*/false);
    ASSERT_FALSE(there.has_value()) << listen;
    EXPECT_THAT(there.error().message, HasSubstr("needs mutual TLS: give --tls-cert, --tls-key and --tls-client-ca"));
  }
}

TEST(ListenAddress, WithTlsIsAnyAddress) {
  auto there = ListenAt("--listen", "0.0.0.0:0", /*has_tls=*/true);
  ASSERT_TRUE(there.has_value()) << there.error().message;
  EXPECT_THAT(there->address, testing::MatchesRegex("0.0.0.0:[1-9][0-9]*"));
}

TEST(ListenAddress, SaysHowToWriteOne) {
  for (const char* listen :
       {"7443", ":7443", "127.0.0.1", "127.0.0.1:x", "127.0.0.1:70000", "127.0.0.1:", "[zz]:1", "example.com:80"}) {
    auto there = ListenAt("--listen", listen, /*has_tls=*/true);
    ASSERT_FALSE(there.has_value()) << listen;
    EXPECT_THAT(there.error().message, HasSubstr("write it like 127.0.0.1:7443"));
  }
}

TEST(ListenAddress, SaysThatThePortIsTaken) {
  auto first = ListenAt("--listen", "127.0.0.1:0", /*has_tls=*/false);
  ASSERT_TRUE(first.has_value()) << first.error().message;
  auto second = ListenAt("--listen", first->address, /*has_tls=*/false);
  ASSERT_FALSE(second.has_value());
  EXPECT_THAT(second.error().message, HasSubstr("another program listens there"));
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

TEST_F(SocketPathTest, IsOpenToItsOwnerOnly) {
  Bind();
  auto fd = ListenAtPath(dir_ + "/api.sock");
  ASSERT_TRUE(fd.has_value()) << fd.error().message;
  struct stat status;
  ASSERT_EQ(stat((dir_ + "/api.sock").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  EXPECT_FALSE(CheckSocketPath(dir_).has_value()) << "it listens";
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
