/* Prints what agent/runtimes/cpython/cpython_layout.c must say of the CPython whose headers this is compiled with: a line
 * "field value" each. From 3.13 on: where the runtime itself says it, in words of its _Py_DebugOffsets. Lines of
 * "objects.field" are for daemon/managed/cpython, of versions before 3.14. */
#define Py_BUILD_CORE 1
#include <Python.h>
#include <frameobject.h>
#include <stddef.h>
#include <stdio.h>
#if PY_VERSION_HEX < 0x030b0000
#include <code.h>
#else
#include "internal/pycore_code.h"
#include "internal/pycore_frame.h"
#endif
#include "internal/pycore_gil.h"
#include "internal/pycore_pystate.h"
#if PY_VERSION_HEX >= 0x03090000
#include "internal/pycore_interp.h"
#include "internal/pycore_runtime.h"
#endif

#define FIELD(name, type, member) printf("%s %zu\n", name, offsetof(type, member))
#define PLACE(name, member) printf("%s %zu\n", name, offsetof(_Py_DebugOffsets, member) / 8)

/* A row of the table of cpython_objects.cc, and the place of sys.modules. */
static void print_objects(void) {
#if PY_VERSION_HEX < 0x030e0000
#if PY_VERSION_HEX >= 0x030c0000
  FIELD("objects.modules", PyInterpreterState, imports.modules);
#else
  FIELD("objects.modules", PyInterpreterState, modules);
#endif
#if PY_VERSION_HEX >= 0x030d0000
  FIELD("objects.frame_executable", _PyInterpreterFrame, f_executable);
  FIELD("objects.frame_instruction", _PyInterpreterFrame, instr_ptr);
#elif PY_VERSION_HEX >= 0x030b0000
  FIELD("objects.frame_executable", _PyInterpreterFrame, f_code);
  FIELD("objects.frame_instruction", _PyInterpreterFrame, prev_instr);
#else
  FIELD("objects.frame_executable", PyFrameObject, f_code);
  FIELD("objects.frame_instruction", PyFrameObject, f_lasti);
#endif
#if PY_VERSION_HEX >= 0x030b0000
  FIELD("objects.code_name", PyCodeObject, co_qualname);
  FIELD("objects.code_lines", PyCodeObject, co_linetable);
  FIELD("objects.code_instructions", PyCodeObject, co_code_adaptive);
  FIELD("objects.generator_frame", PyGenObject, gi_iframe);
  FIELD("objects.generator_state", PyGenObject, gi_frame_state);
#else
  FIELD("objects.code_name", PyCodeObject, co_name);
#if PY_VERSION_HEX >= 0x030a0000
  FIELD("objects.code_lines", PyCodeObject, co_linetable);
#else
  FIELD("objects.code_lines", PyCodeObject, co_lnotab);
#endif
  FIELD("objects.generator_frame", PyGenObject, gi_frame);
#endif
  FIELD("objects.code_file", PyCodeObject, co_filename);
  FIELD("objects.code_first_line", PyCodeObject, co_firstlineno);
  printf("objects.text_ascii_bytes %zu\n", sizeof(PyASCIIObject));
#endif
}

int main(void) {
  print_objects();
#if PY_VERSION_HEX >= 0x030d0000
  PLACE("runtime_interpreters", runtime_state.interpreters_head);
  PLACE("interpreter_next", interpreter_state.next);
  PLACE("interpreter_threads", interpreter_state.threads_head);
  PLACE("gil_pointer", interpreter_state.ceval_gil);
  PLACE("gil", interpreter_state.gil_runtime_state);
  PLACE("gil_locked", interpreter_state.gil_runtime_state_locked);
  PLACE("gil_holder", interpreter_state.gil_runtime_state_holder);
  PLACE("thread_previous", thread_state.prev);
  PLACE("thread_next", thread_state.next);
  PLACE("thread_interpreter", thread_state.interp);
  PLACE("thread_frame", thread_state.current_frame);
  PLACE("thread_id", thread_state.thread_id);
  PLACE("frame_previous", interpreter_frame.previous);
  PLACE("frame_code", interpreter_frame.executable);
  PLACE("frame_position", interpreter_frame.instr_ptr);
  PLACE("frame_entry", interpreter_frame.owner);
  PLACE("code_file", code_object.filename);
  PLACE("code_name", code_object.qualname);
  PLACE("code_lines", code_object.linetable);
  PLACE("code_first_line", code_object.firstlineno);
  PLACE("code_instructions", code_object.co_code_adaptive);
  PLACE("bytes_size", bytes_object.ob_size);
  PLACE("bytes_data", bytes_object.ob_sval);
  PLACE("text_state", unicode_object.state);
  PLACE("text_length", unicode_object.length);
  PLACE("text_ascii_bytes", unicode_object.asciiobject_size);
#else
  FIELD("runtime_interpreters", _PyRuntimeState, interpreters.head);
  FIELD("gil_holder", struct _gil_runtime_state, last_holder);
  FIELD("gil_locked", struct _gil_runtime_state, locked);
  FIELD("interpreter_next", PyInterpreterState, next);
  FIELD("thread_previous", PyThreadState, prev);
  FIELD("thread_next", PyThreadState, next);
  FIELD("thread_interpreter", PyThreadState, interp);
  FIELD("thread_id", PyThreadState, thread_id);
  FIELD("code_file", PyCodeObject, co_filename);
  FIELD("code_first_line", PyCodeObject, co_firstlineno);
  FIELD("text_length", PyASCIIObject, length);
  FIELD("text_state", PyASCIIObject, state);
  printf("text_ascii_bytes %zu\ntext_compact_bytes %zu\n", sizeof(PyASCIIObject), sizeof(PyCompactUnicodeObject));
  FIELD("bytes_size", PyVarObject, ob_size);
  FIELD("bytes_data", PyBytesObject, ob_sval);
#if PY_VERSION_HEX >= 0x030c0000
  FIELD("gil", PyInterpreterState, ceval.gil);
#else
  FIELD("gil", _PyRuntimeState, ceval.gil);
#endif
#if PY_VERSION_HEX >= 0x030b0000
  FIELD("interpreter_threads", PyInterpreterState, threads.head);
  FIELD("thread_frame", PyThreadState, cframe);
  FIELD("cframe_frame", _PyCFrame, current_frame);
  FIELD("cframe_previous", _PyCFrame, previous);
  FIELD("frame_previous", _PyInterpreterFrame, previous);
  FIELD("frame_code", _PyInterpreterFrame, f_code);
  FIELD("frame_position", _PyInterpreterFrame, prev_instr);
  FIELD("code_name", PyCodeObject, co_qualname);
  FIELD("code_lines", PyCodeObject, co_linetable);
  FIELD("code_instructions", PyCodeObject, co_code_adaptive);
#if PY_VERSION_HEX >= 0x030c0000
  FIELD("frame_entry", _PyInterpreterFrame, owner);
#else
  FIELD("frame_entry", _PyInterpreterFrame, is_entry);
#endif
#else
  FIELD("interpreter_threads", PyInterpreterState, tstate_head);
  FIELD("thread_frame", PyThreadState, frame);
  FIELD("frame_previous", PyFrameObject, f_back);
  FIELD("frame_code", PyFrameObject, f_code);
  FIELD("frame_position", PyFrameObject, f_lasti);
  FIELD("code_name", PyCodeObject, co_name);
#if PY_VERSION_HEX >= 0x030a0000
  FIELD("code_lines", PyCodeObject, co_linetable);
#else
  FIELD("code_lines", PyCodeObject, co_lnotab);
#endif
#endif
#endif
  return 0;
}
