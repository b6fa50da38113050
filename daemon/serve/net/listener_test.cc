// Connections from the socket to gRPC's name for them, with a real server behind it.
#include "daemon/serve/net/listener.h"

#include <gmock/gmock.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <vector>

#include "daemon/serve/net/listen_address.h"
#include "grpc/health/v1/health.grpc.pb.h"

namespace stackd {
namespace {

using grpc::health::v1::Health;
using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

constexpr int kPatienceMs = 10'000;
constexpr size_t kMostOfOneUser = 512;

// Remembers who called last.
class Remembers final : public Health::CallbackService {
 public:
  explicit Remembers(const Listener* listener) : listener_(listener) {}

  grpc::ServerUnaryReactor* Check(grpc::CallbackServerContext* context, const HealthCheckRequest*,
                                  HealthCheckResponse*) override {
    caller_ = listener_->PeerOf(context->peer());
    auto* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
  std::optional<UnixPeer> caller() const { return caller_; }

 private:
  const Listener* const listener_;
  std::optional<UnixPeer> caller_;
};

class ListenerTest : public testing::Test {
 protected:
  void SetUp() override {
    rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    char dir[] = "/tmp/stackd_listener_XXXXXX";
    ASSERT_NE(mkdtemp(dir), nullptr);
    path_ = std::string(dir) + "/api.sock";
    Result<Fd> socket = ListenAtPath(path_);
    ASSERT_TRUE(socket.has_value()) << socket.error().message;
    listener_ = std::make_unique<Listener>(std::move(*socket), path_);
    service_ = std::make_unique<Remembers>(listener_.get());
    grpc::ServerBuilder builder;
    builder.RegisterService(service_.get());
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
    listener_->Start(server_.get());
  }
  void TearDown() override {
    listener_->Stop();
    server_->Shutdown(std::chrono::system_clock::now());
    std::filesystem::remove_all(std::filesystem::path(path_).parent_path());
  }

  grpc::Status Call() {
    auto stub = Health::NewStub(grpc::CreateChannel("unix:" + path_, grpc::InsecureChannelCredentials()));
    grpc::ClientContext context;
    HealthCheckResponse response;
    return stub->Check(&context, HealthCheckRequest(), &response);
  }

  Fd Connect() {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    strncpy(address.sun_path, path_.c_str(), sizeof(address.sun_path) - 1);
    Fd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0) << strerror(errno);
    return fd;
  }

  // gRPC sends first on a connection that was handed to it.
  static bool IsServed(const Fd& fd) {
    pollfd ready{fd.get(), POLLIN, 0};
    char byte;
    return poll(&ready, 1, kPatienceMs) == 1 && read(fd.get(), &byte, 1) == 1;
  }

  std::string path_;
  std::unique_ptr<Listener> listener_;
  std::unique_ptr<Remembers> service_;
  std::unique_ptr<grpc::Server> server_;
};

TEST_F(ListenerTest, KnowsWhoCalls) {
  ASSERT_TRUE(Call().ok());
  EXPECT_EQ(service_->caller(), UnixPeer{.uid = geteuid()});
}

TEST_F(ListenerTest, KnowsNobodyByANameThatIsNoConnectionOfIts) {
  ASSERT_TRUE(Call().ok());
  for (const char* peer : {"", "fd:", "fd:x", "fd:-1", "fd:999999999999", "fd:1000000", "ipv4:127.0.0.1:7443", "unix:"}) {
    EXPECT_EQ(listener_->PeerOf(peer), std::nullopt) << peer;
  }
}

TEST_F(ListenerTest, HasRoomForSoManyOfOneUserAndAgainWhenTheyAreGone) {
  std::vector<Fd> connections;
  for (size_t i = 0; i < kMostOfOneUser; ++i) {
    connections.push_back(Connect());
    ASSERT_TRUE(IsServed(connections.back())) << i;
  }
  EXPECT_FALSE(IsServed(Connect()));
  EXPECT_FALSE(Call().ok());
  connections.clear();
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(kPatienceMs);
  while (!Call().ok()) ASSERT_LT(std::chrono::steady_clock::now(), end);
  EXPECT_EQ(service_->caller(), UnixPeer{.uid = geteuid()});
}

TEST_F(ListenerTest, TakesItsSocketAwayAndNobodyElses) {
  listener_->Stop();
  EXPECT_FALSE(std::filesystem::exists(path_));
  Result<Fd> other = ListenAtPath(path_);
  ASSERT_TRUE(other.has_value()) << other.error().message;
  listener_->Stop();
  EXPECT_TRUE(std::filesystem::exists(path_));
}

TEST_F(ListenerTest, LeavesASocketThatAnotherDaemonPutInItsPlace) {
  std::filesystem::remove(path_);
  Result<Fd> other = ListenAtPath(path_);
  ASSERT_TRUE(other.has_value()) << other.error().message;
  listener_->Stop();
  EXPECT_TRUE(std::filesystem::exists(path_));
}

}  // namespace
}  // namespace stackd
