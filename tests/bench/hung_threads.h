// A hung server, as this benchmark needs it: many threads in template-heavy call paths, each waiting for something that
// never comes.
#pragma once

namespace stackd::bench {

// Starts `count` threads and returns when all of them block. They have 26 to 31 frames each, on some dozens of distinct
// paths that end in mutexes, condition variables, reader-writer locks, semaphores and a barrier. They never end.
void StartHungThreads(int count);

}  // namespace stackd::bench
