#include "client/commands/process_tree.h"

#include <algorithm>
#include <functional>
#include <map>
#include <tuple>

#include "client/place.h"

namespace stackd {
namespace {

auto StartOf(const v1::Process& process) { return std::pair(process.start_time().seconds(), process.start_time().nanos()); }

// Processes with different such keys cannot be parent and child.
auto PlaceKey(const v1::Process& process) { return std::tuple(process.hostname(), PodOf(process), ContainerOf(process)); }

// The processes that may be the parent of `child`. A pid is of one PID namespace, and the API does not tell which.
std::vector<const v1::Process*> ParentsOf(const v1::Process& child, const std::vector<v1::Process>& processes) {
  std::vector<const v1::Process*> parents;
  if (child.parent_pid() == 0) return parents;
  for (const v1::Process& process : processes) {
    if (process.pid() == child.parent_pid() && process.name() != child.name() && PlaceKey(process) == PlaceKey(child) &&
        StartOf(process) <= StartOf(child)) {
      parents.push_back(&process);
    }
  }
  return parents;
}

}  // namespace

ProcessTree TreeOf(const std::string& root, const std::vector<v1::Process>& processes) {
  ProcessTree tree;
  std::map<std::string, std::vector<const v1::Process*>> children;
  for (const v1::Process& process : processes) {
    const auto parents = ParentsOf(process, processes);
    if (parents.size() == 1) children[parents[0]->name()].push_back(&process);
    if (parents.size() > 1) tree.doubtful.push_back(process.name());
  }
  const std::function<void(const v1::Process&, int)> add = [&](const v1::Process& process, int depth) {
    const bool is_there = std::ranges::any_of(
        tree.members, [&](const TreeMember& member) { return member.process.name() == process.name(); });
    // A pid that was used again may close a circle.
    if (is_there) return;
    tree.members.push_back({process, depth});
    std::vector<const v1::Process*>& below = children[process.name()];
    std::ranges::sort(below, {}, [](const v1::Process* child) { return std::pair(StartOf(*child), child->pid()); });
    for (const v1::Process* child : below) add(*child, depth + 1);
  };
  const auto found = std::ranges::find(processes, root, &v1::Process::name);
  if (found != processes.end()) add(*found, 0);
  return tree;
}

}  // namespace stackd
