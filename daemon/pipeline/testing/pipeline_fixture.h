// A pipeline between fake stages and a store in memory.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/pipeline/pipeline.h"
#include "daemon/testing/fake_stages.h"

namespace stackd {

class PipelineTest : public testing::Test {
 protected:
  PipelineTest() {
    ResetFakes();
    store_ = std::move(*DumpStore::Open({.file = ":memory:"}));
    pipeline_ = std::make_unique<Pipeline>(collector_.get(), &symbolizer_, store_.get());
  }

  void CaptureIs(const std::vector<std::vector<uint64_t>>& stacks) {
    Fakes().capture = [stacks](const CaptureRequest&) { return FakeCapture(7, stacks); };
  }

  Result<std::shared_ptr<const v1::Dump>> Create(uint32_t max_stack_bytes = 4096) {
    return pipeline_->CreateDump("7-100",
                                 {.deadline_ns = MonotonicNs() + kNsPerSecond, .max_stack_bytes = max_stack_bytes});
  }

  std::unique_ptr<Collector> collector_ = FakeCollector();
  Symbolizer symbolizer_{{}};
  std::unique_ptr<DumpStore> store_;
  std::unique_ptr<Pipeline> pipeline_;
};

}  // namespace stackd
