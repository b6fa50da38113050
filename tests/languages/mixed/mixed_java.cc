// The C++ between two layers of Java: see Mixed.java.
#include <jni.h>

namespace mixed {

__attribute__((noinline)) void CallBack(JNIEnv* env, jclass caller) {
  env->CallStaticVoidMethod(caller, env->GetStaticMethodID(caller, "calledBack", "()V"));
  asm volatile("");  // not a tail call
}

}  // namespace mixed

extern "C" JNIEXPORT void JNICALL Java_Mixed_throughCpp(JNIEnv* env, jclass caller) {
  mixed::CallBack(env, caller);
  asm volatile("");
}
