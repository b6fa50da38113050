#include "daemon/managed/hotspot/known_vms.h"

#include <gtest/gtest.h>

namespace stackd::hotspot {
namespace {

const VmKey kKey = {"12-3000", 4000, 0x7000};

std::shared_ptr<const KnownVm> Vm(const std::string& version) {
  return std::make_shared<const KnownVm>(KnownVm{.layout = {}, .version = version});
}

TEST(KnownVms, AVmThatWasKeptIsFound) {
  KnownVms vms;
  EXPECT_EQ(vms.Find(kKey), nullptr);
  vms.Keep(kKey, Vm("17"));
  ASSERT_NE(vms.Find(kKey), nullptr);
  EXPECT_EQ(vms.Find(kKey)->version, "17");
}

TEST(KnownVms, WhatOneProcessSaidIsNotTakenForAnother) {
  KnownVms vms;
  vms.Keep(kKey, Vm("17"));
  VmKey of_other_process = kKey, of_other_connection = kKey, elsewhere = kKey;
  of_other_process.process_id = "13-3000";
  of_other_connection.connect_wall_ns++;
  elsewhere.libjvm_avma += 0x1000;
  for (const VmKey& key : {of_other_process, of_other_connection, elsewhere}) EXPECT_EQ(vms.Find(key), nullptr);
}

TEST(KnownVms, TheOldestMakeRoomForTheNewest) {
  KnownVms vms;
  VmKey key = kKey;
  for (size_t i = 0; i <= KnownVms::kMaxVms; ++i, ++key.connect_wall_ns) vms.Keep(key, Vm("17"));
  EXPECT_EQ(vms.Find(kKey), nullptr);
  --key.connect_wall_ns;
  EXPECT_NE(vms.Find(key), nullptr);
}

}  // namespace
}  // namespace stackd::hotspot
