#include "daemon/export/export.h"
#include "daemon/export/piecewise.h"
#include "daemon/export/printable.h"
#include "daemon/export/text_stack.h"
#include "daemon/export/text_summary.h"

namespace stackd {

namespace {

void WriteThread(const v1::Dump& dump, int index, Piecewise* out) {
  const v1::Thread& thread = dump.threads(index);
  *out << "\nThread " << std::to_string(index + 1) << " (tid " << std::to_string(thread.tid()) << " \""
       << Printable(thread.name()) << "\"): " << Printable(thread.state()) << (thread.is_agent() ? ", stackd's own" : "")
       << "\n";
  if (thread.has_wait() && thread.wait().kind() != v1::Wait::SYSTEM_CALL) {
    *out << Printable(thread.wait().explanation()) << "\n";
  }
  if (const v1::Stack* stack = StackOf(dump, thread)) {
    WriteStack(*stack, "", out);
  } else {
    *out << "(no stack)\n";
  }
}

}  // namespace

void ExportTextByThread(const v1::Dump& dump, const Sink& sink) {
  Piecewise out(sink);
  WriteHeading(dump, &out);
  WriteFindings(dump, &out);
  const v1::Thread* crashed = CrashedThread(dump);
  for (int i = 0; i < dump.threads_size(); ++i) {
    if (&dump.threads(i) == crashed) WriteThread(dump, i, &out);
  }
  for (int i = 0; i < dump.threads_size() && out.wanted(); ++i) {
    if (&dump.threads(i) != crashed) WriteThread(dump, i, &out);
  }
  WriteHarmless(dump, &out);
  WriteNotes(dump, &out);
}

void ExportStack(const v1::Dump& dump, int32_t tid, const Sink& sink) {
  Piecewise out(sink);
  for (const v1::Thread& thread : dump.threads()) {
    const v1::Stack* stack = thread.tid() == tid ? StackOf(dump, thread) : nullptr;
    if (stack != nullptr) WriteStack(*stack, "", &out);
  }
}

}  // namespace stackd
