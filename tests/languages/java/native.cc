// A library of native methods that crashes: of the class Dies.

namespace {

[[gnu::noinline]] void WriteTo(volatile int* place) { *place = 1; }

}  // namespace

extern "C" void Java_Dies_crashInLibrary(void* /*jni*/, void* /*type*/) {
  WriteTo(nullptr);
  asm volatile("");  // no jump in place of the call
}
