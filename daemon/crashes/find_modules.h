// Modules of a process that has ended, from files that the daemon can see itself.
//
// A path is a process's word: it may lead to any file here. So a file is opened only if it is a regular one, parsed only as
// ELF, and believed only if it begins as what the process had in memory. Reading it may wait as long as the file's mount
// does: no thread that others wait for should call this.
#pragma once

#include <string>
#include <vector>

#include "daemon/crashes/spool.h"
#include "daemon/modules/address_map.h"
#include "daemon/modules/module_cache.h"

namespace stackd {

// Sets the modules of the mappings that `images` prove. `notes` gets a sentence if some are missing.
void FindModules(const std::vector<SpoolImage>& images, ModuleCache* cache, std::vector<Mapping>* mappings,
                 std::vector<std::string>* notes);

}  // namespace stackd
