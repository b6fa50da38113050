// The main() of tests that start symbol workers: the worker is the test's own binary.
#include <gtest/gtest.h>

#include "daemon/symbolize/symbolizer.h"

int main(int argc, char** argv) {
  int worker_exit_code = stackd::RunSymbolizeWorkerIfAsked(argc, argv);
  if (worker_exit_code >= 0) return worker_exit_code;
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
