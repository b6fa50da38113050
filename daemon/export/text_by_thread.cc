#include "daemon/export/export.h"
#include "daemon/export/piecewise.h"
#include "daemon/export/printable.h"
#include "daemon/export/text_stack.h"
#include "daemon/export/text_summary.h"

namespace stackd {

void ExportTextByThread(const v1::Dump& dump, const Sink& sink) {
  Piecewise out(sink);
  WriteHeading(dump, &out);
  for (int i = 0; i < dump.threads_size() && out.wanted(); ++i) {
    const v1::Thread& thread = dump.threads(i);
    out << "\nThread " << std::to_string(i + 1) << " (tid " << std::to_string(thread.tid()) << " \""
        << Printable(thread.name()) << "\"): " << Printable(thread.state()) << "\n";
    const bool known = thread.has_stack() && thread.stack() >= 0 && thread.stack() < dump.stacks_size();
    if (known) {
      WriteStack(dump.stacks(thread.stack()), "", &out);
    } else {
      out << "(no stack)\n";
    }
  }
  WriteNotes(dump, &out);
}

}  // namespace stackd
