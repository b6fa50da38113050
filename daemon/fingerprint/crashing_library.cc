// For a test: the same functions, compiled in more than one way. Without clones, which the dynamic linker cannot name.
namespace crashing {

template <typename T>
class Queue {
 public:
  [[gnu::noipa]] T Pop(T value, void (*leaf)());
};

template <typename T>
[[gnu::noipa]] T Queue<T>::Pop(T value, void (*leaf)()) {
  leaf();
  return value + 1;
}

[[gnu::noipa]] int Serve(int value, void (*leaf)()) {
  Queue<int> queue;
  return queue.Pop(value, leaf) * 3;
}

[[gnu::noipa]] int Run(int value, void (*leaf)()) { return Serve(value, leaf) + 5; }

}  // namespace crashing

extern "C" int RunCrashing(int value, void (*leaf)()) { return crashing::Run(value, leaf) - 7; }
