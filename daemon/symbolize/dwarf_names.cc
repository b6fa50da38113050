#include "daemon/symbolize/dwarf_names.h"

#include <dwarf.h>

#include "daemon/symbolize/demangle.h"

namespace stackd {
namespace {

// More nested scopes than any program has: a hostile file's tree may be deep.
constexpr int kMaxScopes = 64;
// A chain of references between DIEs: instance, origin, declaration.
constexpr int kMaxReferences = 8;

bool Follow(Dwarf_Die* die, unsigned attribute_name) {
  Dwarf_Attribute attribute;
  Dwarf_Die target;
  if (dwarf_attr(die, attribute_name, &attribute) == nullptr || dwarf_formref_die(&attribute, &target) == nullptr)
    return false;
  *die = target;
  return true;
}

// The child of `parent` that is `target` or holds it. Children lie in the order of their offsets.
bool ChildTowards(Dwarf_Die* parent, Dwarf_Off target_offset, Dwarf_Die* child) {
  Dwarf_Die next;
  if (dwarf_child(parent, &next) != 0) return false;
  bool found = false;
  Dwarf_Off last_offset = 0;
  do {
    Dwarf_Off offset = dwarf_dieoffset(&next);
    if (offset > target_offset || offset <= last_offset) break;
    last_offset = offset;
    *child = next;
    found = true;
  } while (dwarf_siblingof(&next, &next) == 0);
  return found;
}

std::string_view PlainName(Dwarf_Die* die) {
  const char* name = dwarf_diename(die);
  return name != nullptr ? std::string_view(name).substr(0, kMaxNameBytes) : std::string_view();
}

// How a scope appears in a name; empty if it does not.
std::string_view ScopeName(Dwarf_Die* die) {
  std::string_view name = PlainName(die);
  switch (dwarf_tag(die)) {
    case DW_TAG_namespace:
      return name.empty() ? "(anonymous namespace)" : name;
    case DW_TAG_class_type:
    case DW_TAG_structure_type:
    case DW_TAG_union_type:
      // Compilers leave the class of a lambda nameless, or call it "<lambda(int)>".
      return name.empty() || name.starts_with("<lambda") ? "{lambda}" : name;
    case DW_TAG_subprogram:
      return name;
    default:
      return {};
  }
}

}  // namespace

Dwarf_Die OriginOf(Dwarf_Die die) {
  for (int i = 0; i < kMaxReferences && Follow(&die, DW_AT_abstract_origin); ++i) {
  }
  return die;
}

std::string_view LinkageName(Dwarf_Die* die) {
  Dwarf_Attribute attribute;
  if (dwarf_attr_integrate(die, DW_AT_linkage_name, &attribute) == nullptr &&
      dwarf_attr_integrate(die, DW_AT_MIPS_linkage_name, &attribute) == nullptr) {
    return {};
  }
  const char* name = dwarf_formstring(&attribute);
  return name != nullptr ? name : std::string_view();
}

std::string QualifiedName(Dwarf_Die* die) {
  Dwarf_Die declaration = OriginOf(*die);
  for (int i = 0; i < kMaxReferences && Follow(&declaration, DW_AT_specification); ++i) {
  }
  std::string own_name(PlainName(&declaration));
  if (own_name.empty()) return own_name;
  std::string name;
  Dwarf_Off target_offset = dwarf_dieoffset(&declaration);
  Dwarf_Die scope, child;
  if (dwarf_diecu(&declaration, &scope, nullptr, nullptr) == nullptr) return own_name;
  for (int i = 0; i < kMaxScopes && ChildTowards(&scope, target_offset, &child); ++i) {
    if (dwarf_dieoffset(&child) == target_offset) break;
    std::string_view scope_name = ScopeName(&child);
    if (!scope_name.empty() && name.size() + scope_name.size() < kMaxNameBytes) {
      name += scope_name;
      name += "::";
    }
    scope = child;
  }
  return name + own_name;
}

}  // namespace stackd
