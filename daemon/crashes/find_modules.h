// Modules of a process that has ended, from files that the daemon can see itself.
//
// The path comes from the process, and may lead to any file here. So only a regular file is opened, and it is parsed only
// as ELF. It is believed only if it begins as what the process had in memory. Reading it may wait as long as the file's
// mount does: no thread that others wait for should call this.
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
