#include "agent/maps/loaded_object.h"

#include <elf.h>
#include <string.h>

#include "agent/maps/maps_line.h"
#include "agent/sys/kernel.h"
#include "agent/sys/target.h"

/* Nothing here trusts what it reads: an object may be unmapped at any moment, or be no object. */
#define MAX_PROGRAM_HEADERS 64
#define MAX_DYNAMIC 256
#define MAX_NOTES 64
#define MAX_CHAIN 4096
#define MAX_NAME_BYTES 128

static bool read_at(uint64_t address, void* out, size_t size_bytes) {
  return stackd_read_memory(stackd_target_pid(), address, out, size_bytes) == (long)size_bytes;
}

/* The loader adds the bias to most addresses in a dynamic section, but not to all of every object. */
static uint64_t resolve(const struct stackd_loaded_object* object, uint64_t value) {
  return value >= object->bias ? value : object->bias + value;
}

static bool read_dynamic(struct stackd_loaded_object* object, uint64_t address) {
  for (int i = 0; i < MAX_DYNAMIC; i++) {
    Elf64_Dyn entry;
    if (!read_at(address + (uint64_t)i * sizeof(entry), &entry, sizeof(entry)) || entry.d_tag == DT_NULL) break;
    if (entry.d_tag == DT_GNU_HASH) object->hash = resolve(object, entry.d_un.d_ptr);
    if (entry.d_tag == DT_HASH) object->old_hash = resolve(object, entry.d_un.d_ptr);
    if (entry.d_tag == DT_SYMTAB) object->symbols = resolve(object, entry.d_un.d_ptr);
    if (entry.d_tag == DT_STRTAB) object->strings = resolve(object, entry.d_un.d_ptr);
  }
  return (object->hash != 0 || object->old_hash != 0) && object->symbols != 0 && object->strings != 0;
}

bool stackd_loaded_object_at(uint64_t start, struct stackd_loaded_object* object) {
  Elf64_Ehdr header;
  if (!read_at(start, &header, sizeof(header)) || memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return false;
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_phentsize != sizeof(Elf64_Phdr)) return false;
  memset(object, 0, sizeof(*object));
  object->start = start;
  bool has_bias = false;
  uint64_t dynamic_svma = 0;
  for (int i = 0; i < header.e_phnum && i < MAX_PROGRAM_HEADERS; i++) {
    Elf64_Phdr segment;
    if (!read_at(start + header.e_phoff + (uint64_t)i * sizeof(segment), &segment, sizeof(segment))) return false;
    if (segment.p_type == PT_LOAD && segment.p_offset == 0) {
      object->bias = start - segment.p_vaddr;
      has_bias = true;
    }
    if (segment.p_type == PT_DYNAMIC) dynamic_svma = segment.p_vaddr;
  }
  return has_bias && dynamic_svma != 0 && read_dynamic(object, object->bias + dynamic_svma);
}

static uint64_t padded(uint64_t size_bytes) { return (size_bytes + 3) & ~3ull; }

static bool is_note_between(uint64_t at, uint64_t end, const char* name, uint32_t type) {
  const size_t name_bytes = strlen(name) + 1;
  for (int i = 0; i < MAX_NOTES && at + sizeof(Elf64_Nhdr) < end; i++) {
    Elf64_Nhdr note;
    char text[MAX_NAME_BYTES];
    if (!read_at(at, &note, sizeof(note))) return false;
    at += sizeof(note);
    /* Some count what pads the name as a part of it. */
    bool may_be = note.n_type == type && padded(note.n_namesz) == padded(name_bytes);
    if (may_be && read_at(at, text, name_bytes) && memcmp(text, name, name_bytes) == 0) return true;
    at += padded(note.n_namesz) + padded(note.n_descsz);
  }
  return false;
}

bool stackd_loaded_object_has_note(const struct stackd_loaded_object* object, const char* name, uint32_t type) {
  Elf64_Ehdr header;
  if (!read_at(object->start, &header, sizeof(header)) || header.e_phentsize != sizeof(Elf64_Phdr)) return false;
  for (int i = 0; i < header.e_phnum && i < MAX_PROGRAM_HEADERS; i++) {
    Elf64_Phdr segment;
    uint64_t at = object->start + header.e_phoff + (uint64_t)i * sizeof(segment);
    if (!read_at(at, &segment, sizeof(segment))) return false;
    if (segment.p_type != PT_NOTE) continue;
    uint64_t notes = object->bias + segment.p_vaddr;
    if (is_note_between(notes, notes + segment.p_memsz, name, type)) return true;
  }
  return false;
}

static uint32_t hash_of(const char* name) {
  uint32_t hash = 5381;
  for (; *name != '\0'; name++) hash = hash * 33 + (unsigned char)*name;
  return hash;
}

static uint32_t old_hash_of(const char* name) {
  uint32_t hash = 0;
  for (; *name != '\0'; name++) {
    hash = (hash << 4) + (unsigned char)*name;
    hash ^= hash >> 24 & 0xf0;
    hash &= 0x0fffffff;
  }
  return hash;
}

static bool is_named(const struct stackd_loaded_object* object, const Elf64_Sym* symbol, const char* name) {
  char text[MAX_NAME_BYTES];
  size_t size_bytes = strlen(name) + 1;
  return size_bytes <= sizeof(text) && read_at(object->strings + symbol->st_name, text, size_bytes) &&
         memcmp(text, name, size_bytes) == 0;
}

static bool is_in_memory(const Elf64_Sym* symbol) {
  unsigned type = ELF64_ST_TYPE(symbol->st_info);
  return symbol->st_shndx != SHN_UNDEF && (type == STT_OBJECT || type == STT_FUNC || type == STT_NOTYPE);
}

static bool read_symbol(const struct stackd_loaded_object* object, uint32_t index, const char* name,
                        struct stackd_loaded_symbol* out) {
  Elf64_Sym symbol;
  if (!read_at(object->symbols + (uint64_t)index * sizeof(symbol), &symbol, sizeof(symbol))) return false;
  if (!is_in_memory(&symbol) || !is_named(object, &symbol, name)) return false;
  *out = (struct stackd_loaded_symbol){object->bias + symbol.st_value, symbol.st_size};
  return true;
}

/* Linkers wrote this table alone before 2006, and some still do for Java. */
static struct stackd_loaded_symbol find_by_old_hash(const struct stackd_loaded_object* object, const char* name) {
  struct stackd_loaded_symbol found = {0, 0};
  struct {
    uint32_t bucket_count, chain_count;
  } table;
  if (!read_at(object->old_hash, &table, sizeof(table)) || table.bucket_count == 0) return found;
  uint64_t buckets = object->old_hash + sizeof(table);
  uint64_t chains = buckets + 4ull * table.bucket_count;
  uint32_t index;
  if (!read_at(buckets + 4ull * (old_hash_of(name) % table.bucket_count), &index, sizeof(index))) return found;
  for (int i = 0; i < MAX_CHAIN && index != STN_UNDEF && index < table.chain_count; i++) {
    if (read_symbol(object, index, name, &found)) return found;
    if (!read_at(chains + 4ull * index, &index, sizeof(index))) return found;
  }
  return found;
}

struct stackd_loaded_symbol stackd_loaded_symbol(const struct stackd_loaded_object* object, const char* name) {
  if (object->hash == 0) return find_by_old_hash(object, name);
  struct stackd_loaded_symbol none = {0, 0};
  struct {
    uint32_t bucket_count, first_symbol, filter_words, filter_shift;
  } table;
  if (!read_at(object->hash, &table, sizeof(table)) || table.bucket_count == 0 || table.filter_words == 0) return none;
  uint32_t hash = hash_of(name);
  uint64_t filters = object->hash + sizeof(table);
  uint64_t filter;
  if (!read_at(filters + 8ull * (hash / 64 % table.filter_words), &filter, sizeof(filter))) return none;
  if ((filter >> (hash % 64) & filter >> ((hash >> (table.filter_shift & 31)) % 64) & 1) == 0) return none;
  uint64_t buckets = filters + 8ull * table.filter_words;
  uint64_t chains = buckets + 4ull * table.bucket_count;
  uint32_t index;
  if (!read_at(buckets + 4ull * (hash % table.bucket_count), &index, sizeof(index)) || index < table.first_symbol) {
    return none;
  }
  for (int i = 0; i < MAX_CHAIN; i++, index++) {
    uint32_t link;
    if (!read_at(chains + 4ull * (index - table.first_symbol), &link, sizeof(link))) return none;
    struct stackd_loaded_symbol found;
    if ((link | 1) == (hash | 1) && read_symbol(object, index, name, &found)) return found;
    if ((link & 1) != 0) return none;
  }
  return none;
}

void stackd_loaded_objects(int maps_fd, void (*visit)(const struct stackd_loaded_object* object)) {
  struct stackd_maps_line line;
  stackd_maps_line_clear(&line);
  /* The start of a file, which is looked at when the file turns out to be code. A file of data may lie on a server that
   * does not answer, or have no page there yet. */
  uint64_t start = 0, start_inode = 0;
  off_t offset = 0;
  for (;;) {
    char text[4096];
    ssize_t got = stackd_pread(maps_fd, text, sizeof(text), offset);
    if (got <= 0) return;
    offset += got;
    for (ssize_t i = 0; i < got; i++) {
      if (!stackd_maps_line_take(&line, text[i])) continue;
      if (line.readable && line.inode != 0 && line.file_offset == 0) {
        start = line.range.start;
        start_inode = line.inode;
      }
      if (line.executable && line.inode != 0 && line.inode == start_inode) {
        start_inode = 0;
        struct stackd_loaded_object object;
        if (stackd_loaded_object_at(start, &object)) visit(&object);
      }
      stackd_maps_line_clear(&line);
    }
  }
}
