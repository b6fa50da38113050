#include "daemon/managed/hotspot/layout.h"

namespace stackd::hotspot {
namespace {

enum class From { kOffset, kAddress, kBytes, kConstant };

struct Entry {
  uint64_t Layout::* member;
  From from;
  // By the first of these that the tables have: releases differ in names.
  const char* names[3];
  bool required = true;
};

using enum From;
constexpr bool kOptional = false;

constexpr Entry kEntries[] = {
    {&Layout::method_const_method, kOffset, {"Method._constMethod"}},
    {&Layout::const_method_constants, kOffset, {"ConstMethod._constants"}},
    {&Layout::const_method_code_size, kOffset, {"ConstMethod._code_size"}},
    {&Layout::const_method_name_index, kOffset, {"ConstMethod._name_index"}},
    {&Layout::const_method_flags, kOffset, {"ConstMethod._flags._flags", "ConstMethod._flags"}},
    {&Layout::const_method_bytes, kBytes, {"ConstMethod"}},
    {&Layout::has_line_table_flag,
     kConstant,
     {"ConstMethodFlags::_misc_has_linenumber_table", "ConstMethod::_has_linenumber_table"}},
    {&Layout::constants_holder, kOffset, {"ConstantPool._pool_holder"}},
    {&Layout::constants_length, kOffset, {"ConstantPool._length"}},
    {&Layout::constants_source_file, kOffset, {"ConstantPool._source_file_name_index"}, kOptional},
    {&Layout::constants_bytes, kBytes, {"ConstantPool"}},
    {&Layout::klass_source_file, kOffset, {"InstanceKlass._source_file_name_index"}, kOptional},
    {&Layout::klass_name, kOffset, {"Klass._name"}},
    {&Layout::klass_super, kOffset, {"Klass._super"}},
    {&Layout::symbol_length, kOffset, {"Symbol._length"}},
    {&Layout::symbol_body, kOffset, {"Symbol._body", "Symbol._body[0]"}},

    {&Layout::code_heaps_avma, kAddress, {"CodeCache._heaps"}, kOptional},
    {&Layout::code_heap_avma, kAddress, {"CodeCache._heap"}, kOptional},
    {&Layout::code_low_avma, kAddress, {"CodeCache._low_bound"}, kOptional},
    {&Layout::code_high_avma, kAddress, {"CodeCache._high_bound"}, kOptional},
    {&Layout::list_length, kOffset, {"GrowableArrayBase._len", "GenericGrowableArray._len"}},
    {&Layout::list_data, kOffset, {"GrowableArray<int>._data"}},
    {&Layout::heap_memory, kOffset, {"CodeHeap._memory"}},
    {&Layout::heap_segments, kOffset, {"CodeHeap._segmap"}},
    {&Layout::heap_log2_segment_size, kOffset, {"CodeHeap._log2_segment_size"}},
    {&Layout::space_low, kOffset, {"VirtualSpace._low"}},
    {&Layout::space_high, kOffset, {"VirtualSpace._high"}},
    {&Layout::block_used, kOffset, {"HeapBlock::Header._used"}},
    {&Layout::block_bytes, kBytes, {"HeapBlock"}},
    {&Layout::blob_name, kOffset, {"CodeBlob._name"}},
    {&Layout::blob_size, kOffset, {"CodeBlob._size"}},
    {&Layout::blob_frame_size, kOffset, {"CodeBlob._frame_size"}},
    {&Layout::blob_frame_complete, kOffset, {"CodeBlob._frame_complete_offset"}},
    {&Layout::blob_code_begin, kOffset, {"CodeBlob._code_begin"}, kOptional},
    {&Layout::blob_code_offset, kOffset, {"CodeBlob._code_offset"}, kOptional},
    {&Layout::nmethod_method, kOffset, {"nmethod._method", "CompiledMethod._method"}},
    {&Layout::nmethod_scopes_pcs_offset, kOffset, {"nmethod._scopes_pcs_offset"}},
    {&Layout::nmethod_orig_pc_offset, kOffset, {"nmethod._orig_pc_offset"}},
    {&Layout::nmethod_scopes_data_begin, kOffset, {"CompiledMethod._scopes_data_begin"}, kOptional},
    {&Layout::nmethod_scopes_data_offset, kOffset, {"nmethod._scopes_data_offset"}, kOptional},
    {&Layout::nmethod_dependencies_offset, kOffset, {"nmethod._dependencies_offset"}, kOptional},
    {&Layout::nmethod_immutable_data, kOffset, {"nmethod._immutable_data"}, kOptional},
    {&Layout::nmethod_metadata_offset, kOffset, {"nmethod._metadata_offset"}, kOptional},
    {&Layout::blob_mutable_data, kOffset, {"CodeBlob._mutable_data"}, kOptional},
    {&Layout::blob_mutable_data_size, kOffset, {"CodeBlob._mutable_data_size"}, kOptional},
    {&Layout::blob_relocation_size, kOffset, {"CodeBlob._relocation_size"}, kOptional},
    {&Layout::nmethod_deopt_handler_begin, kOffset, {"CompiledMethod._deopt_handler_begin"}, kOptional},
    {&Layout::nmethod_deopt_handler_offset,
     kOffset,
     {"nmethod._deopt_handler_offset", "nmethod._deoptimize_offset"},
     kOptional},
    {&Layout::call_stub_return_avma, kAddress, {"StubRoutines._call_stub_return_address"}},
    {&Layout::continuation_entry_bytes, kBytes, {"ContinuationEntry"}, kOptional},

    {&Layout::thread_list_avma, kAddress, {"ThreadsSMRSupport._java_thread_list"}, kOptional},
    {&Layout::threads_length, kOffset, {"ThreadsList._length"}, kOptional},
    {&Layout::threads_data, kOffset, {"ThreadsList._threads"}, kOptional},
    {&Layout::first_thread_avma, kAddress, {"Threads._thread_list"}, kOptional},
    {&Layout::thread_next, kOffset, {"JavaThread._next"}, kOptional},
    {&Layout::thread_osthread, kOffset, {"JavaThread._osthread", "Thread._osthread"}},
    {&Layout::osthread_id, kOffset, {"OSThread._thread_id"}},
    {&Layout::thread_object, kOffset, {"JavaThread._threadObj"}, kOptional},
    {&Layout::thread_virtual, kOffset, {"JavaThread._vthread"}, kOptional},
    {&Layout::thread_stack_base, kOffset, {"JavaThread._stack_base", "Thread._stack_base"}, kOptional},
    {&Layout::thread_stack_size, kOffset, {"JavaThread._stack_size", "Thread._stack_size"}, kOptional},
    {&Layout::thread_continuation_entry, kOffset, {"JavaThread._cont_entry"}, kOptional},
    {&Layout::thread_pending_monitor,
     kOffset,
     {"JavaThread._current_pending_monitor", "Thread._current_pending_monitor"},
     kOptional},
    {&Layout::thread_owner_id, kOffset, {"JavaThread._monitor_owner_id"}, kOptional},
    {&Layout::thread_lock_stack, kOffset, {"JavaThread._lock_stack"}, kOptional},
    {&Layout::lock_stack_top, kOffset, {"LockStack._top"}, kOptional},
    {&Layout::lock_stack_base, kOffset, {"LockStack._base[0]"}, kOptional},
    {&Layout::monitor_object, kOffset, {"ObjectMonitor._object"}, kOptional},
    {&Layout::monitor_owner, kOffset, {"ObjectMonitor._owner"}, kOptional},
    {&Layout::narrow_oop_base_avma,
     kAddress,
     {"CompressedOops._base", "CompressedOops._narrow_oop._base", "Universe._narrow_oop._base"},
     kOptional},
    {&Layout::narrow_oop_shift_avma,
     kAddress,
     {"CompressedOops._shift", "CompressedOops._narrow_oop._shift", "Universe._narrow_oop._shift"},
     kOptional},
    {&Layout::narrow_klass_base_avma,
     kAddress,
     {"CompressedKlassPointers._base", "CompressedKlassPointers._narrow_klass._base", "Universe._narrow_klass._base"},
     kOptional},
    {&Layout::narrow_klass_shift_avma,
     kAddress,
     {"CompressedKlassPointers._shift", "CompressedKlassPointers._narrow_klass._shift", "Universe._narrow_klass._shift"},
     kOptional},
    {&Layout::object_klass, kOffset, {"oopDesc._metadata._klass"}},
    {&Layout::compact_klass_shift, kConstant, {"markWord::klass_shift"}, kOptional},
    {&Layout::klass_constants, kOffset, {"InstanceKlass._constants"}, kOptional},
    {&Layout::klass_fields, kOffset, {"InstanceKlass._fields"}, kOptional},
    {&Layout::klass_field_count, kOffset, {"InstanceKlass._java_fields_count"}, kOptional},
    {&Layout::klass_field_stream, kOffset, {"InstanceKlass._fieldinfo_stream"}, kOptional},
    {&Layout::heap_avma, kAddress, {"Universe._collectedHeap"}, kOptional},
    {&Layout::heap_collects, kOffset, {"CollectedHeap._is_stw_gc_active", "CollectedHeap._is_gc_active"}, kOptional},
    {&Layout::heap_collections, kOffset, {"CollectedHeap._total_collections"}, kOptional},
    {&Layout::flags_avma, kAddress, {"JVMFlag.flags", "Flag.flags"}, kOptional},
    {&Layout::flag_count_avma, kAddress, {"JVMFlag.numFlags", "Flag.numFlags"}, kOptional},
    {&Layout::flag_name, kOffset, {"JVMFlag._name", "Flag._name"}, kOptional},
    {&Layout::flag_address, kOffset, {"JVMFlag._addr", "Flag._addr"}, kOptional},
    {&Layout::flag_bytes, kBytes, {"JVMFlag", "Flag"}, kOptional},
};

// No structure of HotSpot's is larger. An offset beyond is none.
constexpr uint64_t kMaxOffset = 1 << 16;

std::optional<uint64_t> Look(const VmStructs& structs, From from, const char* name) {
  switch (from) {
    case kOffset:
      return structs.Offset(name);
    case kAddress:
      return structs.Address(name);
    case kBytes:
      return structs.TypeBytes(name);
    case kConstant:
      return structs.Constant(name);
  }
  return std::nullopt;
}

std::optional<uint64_t> Look(const VmStructs& structs, const Entry& entry) {
  for (const char* name : entry.names) {
    if (name == nullptr) break;
    const auto value = Look(structs, entry.from, name);
    if (value && (entry.from == kAddress || *value < kMaxOffset)) return value;
  }
  return std::nullopt;
}

}  // namespace

Result<Layout> MakeLayout(ProcessMemory* memory, const VmStructs& structs) {
  Layout layout;
  for (const Entry& entry : kEntries) {
    const auto value = Look(structs, entry);
    if (!value && entry.required) {
      return Error(Code::kFailedPrecondition, std::string("this HotSpot does not say where it has ") + entry.names[0]);
    }
    layout.*entry.member = value.value_or(kNone);
  }
  layout.zgc = MakeZgcLayout(structs, 'Z');
  layout.old_zgc = MakeZgcLayout(structs, 'X');
  const bool has_heaps = layout.code_heaps_avma != kNone && layout.code_low_avma != kNone && layout.code_high_avma != kNone;
  if (!has_heaps && layout.code_heap_avma == kNone) {
    return Error(Code::kFailedPrecondition, "this HotSpot does not say where it has its compiled methods");
  }
  // What release 8 tells is HotSpot's own number, 25. The next one had more than one heap of code.
  const auto release = structs.Address("Abstract_VM_Version._vm_major_version");
  layout.release = !has_heaps ? 8 : release ? memory->Value<int32_t>(*release).value_or(0) : 0;
  // Between releases 17 and 25 the field shrank from int to int16_t; a type's size is not in the tables. It did when blobs
  // began to keep where their code is as an offset (JDK-8329332, release 23).
  layout.blob_frame_complete_bytes = layout.blob_code_begin != kNone || layout.release == 8 ? 4 : 2;
  const bool has_code = layout.blob_code_begin != kNone || layout.blob_code_offset != kNone;
  const bool has_scopes = layout.nmethod_scopes_data_begin != kNone
                              ? layout.nmethod_dependencies_offset != kNone
                              : layout.nmethod_scopes_data_offset != kNone &&
                                    (layout.nmethod_immutable_data != kNone || layout.nmethod_dependencies_offset != kNone);
  const bool has_metadata = layout.nmethod_metadata_offset != kNone ||
                            (layout.blob_mutable_data != kNone && layout.blob_relocation_size != kNone);
  if (!has_code || !has_scopes || !has_metadata) {
    return Error(Code::kFailedPrecondition, "this HotSpot does not say where its compiled methods have their scopes");
  }
  const bool has_threads = layout.thread_list_avma != kNone
                               ? layout.threads_length != kNone && layout.threads_data != kNone
                               : layout.first_thread_avma != kNone && layout.thread_next != kNone;
  if (!has_threads) return Error(Code::kFailedPrecondition, "this HotSpot does not say where it has its threads");
  if (layout.release < 8) return Error(Code::kFailedPrecondition, "this HotSpot does not say which release it is");
  return layout;
}

}  // namespace stackd::hotspot
