#include "daemon/outside/socket_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stackd {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

constexpr char kTcp[] =
    "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
    "   0: 00000000:0050 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 11 1 0 100 0 0 10 0\n"
    "   1: 0100007F:1F90 0200000A:A0B2 01 00000000:00000000 00:00000000 00000000  1000        0 12 1 0 100 0 0 10 0\n"
    "   2: 0100007F:1F91 0200000A:A0B2 06 00000000:00000000 03:000017B0 00000000     0        0 0 3 0\n";
constexpr char kTcp6[] =
    "  sl  local_address                         remote_address                        st tx_queue\n"
    "   0: 00000000000000000000000001000000:1F92 00000000000000000000000000000000:0000 0A 0:0 0:0 0 0 0 13 1 0\n";
constexpr char kUnix[] =
    "Num       RefCount Protocol Flags    Type St Inode Path\n"
    "0000000000000000: 00000002 00000000 00010000 0001 01 21 /run/a b.sock\n"
    "0000000000000000: 00000003 00000000 00000000 0001 03 22 @bus\n"
    "0000000000000000: 00000003 00000000 00000000 0001 03 23\n";

TEST(SocketTableTest, NamesSocketsAsTheAgentDoes) {
  SocketNames names;
  AddInternetSockets(kTcp, "tcp", &names);
  AddInternetSockets(kTcp6, "tcp", &names);
  AddUnixSockets(kUnix, &names);
  EXPECT_THAT(names, ElementsAre(Pair(11, "tcp listening on 0.0.0.0:80"), Pair(12, "tcp 127.0.0.1:8080 -> 10.0.0.2:41138"),
                                 Pair(13, "tcp listening on [::1]:8082"), Pair(21, "unix listening on /run/a b.sock"),
                                 Pair(22, "unix @bus"), Pair(23, "unix")));
}

TEST(SocketTableTest, LeavesOutWhatMakesNoSense) {
  SocketNames names;
  for (const char* text : {"", "\n", "head\n\n", "head\n1 2 3\n", "head\n0: zz yy 0A a b c d e x\n", "head\nno end"}) {
    AddInternetSockets(text, "udp", &names);
    AddUnixSockets(text, &names);
  }
  EXPECT_THAT(names, IsEmpty());
}

}  // namespace
}  // namespace stackd
