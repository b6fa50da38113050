// Where HotSpot keeps what the reader needs: offsets of one libjvm. They are taken from its own tables (vm_structs.h), so
// no number in here belongs to one version. What the tables do not say is in layout.cc, with its source.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "daemon/base/result.h"
#include "daemon/managed/hotspot/vm_structs.h"
#include "daemon/managed/hotspot/zgc.h"

namespace stackd::hotspot {

inline constexpr uint64_t kNone = ~uint64_t{0};

struct Layout {
  int32_t release = 0;  // 8, 17, 21, 25

  // Methods and their names.
  uint64_t method_const_method;
  uint64_t const_method_constants, const_method_code_size, const_method_name_index, const_method_flags, const_method_bytes;
  uint64_t has_line_table_flag;
  uint64_t constants_holder, constants_length, constants_source_file, constants_bytes;
  uint64_t klass_source_file;  // where constants_source_file is none
  uint64_t klass_name, klass_super;
  uint64_t symbol_length, symbol_body;

  // Code made at run time.
  uint64_t code_heaps_avma, code_low_avma, code_high_avma;  // of variables; kNone: there is one heap
  uint64_t code_heap_avma;                                  // of a variable
  uint64_t list_length, list_data;
  uint64_t heap_memory, heap_segments, heap_log2_segment_size;
  uint64_t space_low, space_high;
  uint64_t block_used, block_bytes;
  uint64_t blob_name, blob_size, blob_frame_size, blob_frame_complete;
  uint64_t blob_frame_complete_bytes;          // of the field: 2 or 4
  uint64_t blob_code_begin, blob_code_offset;  // the one or the other
  uint64_t nmethod_method, nmethod_scopes_pcs_offset, nmethod_orig_pc_offset;
  uint64_t nmethod_scopes_data_begin, nmethod_scopes_data_offset;  // a pointer, or an offset in what follows
  uint64_t nmethod_immutable_data;                                 // kNone: the method itself
  uint64_t nmethod_dependencies_offset;                            // end of the table of PCs that is in the method
  uint64_t nmethod_metadata_offset;  // from the blob; kNone: behind the relocations of the mutable data
  uint64_t blob_mutable_data, blob_mutable_data_size, blob_relocation_size;
  uint64_t nmethod_deopt_handler_begin, nmethod_deopt_handler_offset;
  uint64_t call_stub_return_avma;  // of a variable
  uint64_t continuation_entry_bytes;

  // Threads and locks. kNone where a release has none: then less is said, not nothing.
  uint64_t thread_list_avma;  // of a variable
  uint64_t threads_length, threads_data;
  uint64_t first_thread_avma, thread_next;  // where there is no list: a variable, and a field
  uint64_t thread_osthread, osthread_id;
  uint64_t thread_object, thread_virtual, thread_stack_base, thread_stack_size, thread_continuation_entry;
  uint64_t thread_pending_monitor, thread_owner_id, thread_lock_stack;
  uint64_t lock_stack_top, lock_stack_base;
  uint64_t monitor_object, monitor_owner;
  uint64_t narrow_oop_base_avma, narrow_oop_shift_avma, narrow_klass_base_avma, narrow_klass_shift_avma;  // of variables
  uint64_t object_klass;
  uint64_t compact_klass_shift;  // in the word that each object begins with, where that also says the class
  uint64_t klass_constants, klass_fields, klass_field_count, klass_field_stream;
  uint64_t heap_avma;  // of a variable
  uint64_t heap_collects, heap_collections;
  uint64_t flags_avma, flag_count_avma;  // of variables
  uint64_t flag_name, flag_address, flag_bytes;
  std::optional<ZgcLayout> zgc;
  std::optional<ZgcLayout> old_zgc;  // of one generation, where `zgc` has two (releases 21 to 23)
};

// An error names what is missing.
Result<Layout> MakeLayout(ProcessMemory* memory, const VmStructs& structs);

}  // namespace stackd::hotspot
