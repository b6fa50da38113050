/* A libjvm.so of no release: describes structures for debuggers as HotSpot does, but none that the daemon wants. */
#include <stdint.h>

struct entry {
  const char* type;
  const char* field;
  const char* text;
  int32_t is_static;
  uint64_t offset;
  void* address;
};
static struct entry fields[] = {{"Method", "_somethingElse", "", 0, 8, 0}, {0}};
static struct {
  const char* name;
  uint64_t value;
} numbers[] = {{"Method", 8}, {0}};

void *gHotSpotVMStructs = fields, *gHotSpotVMTypes = numbers, *gHotSpotVMIntConstants = numbers,
     *gHotSpotVMLongConstants = numbers;

uint64_t gHotSpotVMStructEntryTypeNameOffset = 0, gHotSpotVMStructEntryFieldNameOffset = 8,
         gHotSpotVMStructEntryIsStaticOffset = 24, gHotSpotVMStructEntryOffsetOffset = 32,
         gHotSpotVMStructEntryAddressOffset = 40, gHotSpotVMStructEntryArrayStride = sizeof(struct entry);
uint64_t gHotSpotVMTypeEntryTypeNameOffset = 0, gHotSpotVMTypeEntrySizeOffset = 8, gHotSpotVMTypeEntryArrayStride = 16;
uint64_t gHotSpotVMIntConstantEntryNameOffset = 0, gHotSpotVMIntConstantEntryValueOffset = 8,
         gHotSpotVMIntConstantEntryArrayStride = 16;
uint64_t gHotSpotVMLongConstantEntryNameOffset = 0, gHotSpotVMLongConstantEntryValueOffset = 8,
         gHotSpotVMLongConstantEntryArrayStride = 16;
