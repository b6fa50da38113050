#include "daemon/confine/confine_daemon.h"

#include <link.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <span>
#include <string>

#include "daemon/confine/landlock.h"
#include "daemon/confine/seccomp_filter.h"
#include "daemon/log/log.h"

namespace stackd {
namespace {

// Lists what is refused, not what is allowed. gRPC, SQLite and libc may use other calls on the next kernel, and must not
// die of that. Leak checkers need ptrace.
constexpr uint32_t kRefused[] = {
#if !defined(__SANITIZE_ADDRESS__)
    SYS_ptrace,
#endif
    SYS_process_vm_readv,
    SYS_process_vm_writev,
    SYS_process_madvise,
    SYS_pidfd_getfd,
    SYS_kcmp,
    SYS_move_pages,
    SYS_migrate_pages,
    SYS_perf_event_open,
    SYS_userfaultfd,
    SYS_bpf,
    SYS_io_uring_setup,
    SYS_io_uring_enter,
    SYS_io_uring_register,
    SYS_fanotify_init,
    SYS_open_by_handle_at,
    SYS_mount,
    SYS_umount2,
    SYS_mount_setattr,
    SYS_move_mount,
    SYS_open_tree,
    SYS_fsopen,
    SYS_fsconfig,
    SYS_fsmount,
    SYS_fspick,
    SYS_pivot_root,
    SYS_chroot,
    SYS_unshare,
    SYS_setns,
    SYS_quotactl,
    SYS_quotactl_fd,
    SYS_swapon,
    SYS_swapoff,
    SYS_acct,
    SYS_syslog,
    SYS_vhangup,
    SYS_reboot,
    SYS_kexec_load,
    SYS_kexec_file_load,
    SYS_init_module,
    SYS_finit_module,
    SYS_delete_module,
    SYS_iopl,
    SYS_ioperm,
    SYS_settimeofday,
    SYS_clock_settime,
    SYS_adjtimex,
    SYS_clock_adjtime,
    SYS_sethostname,
    SYS_setdomainname,
    SYS_add_key,
    SYS_request_key,
    SYS_keyctl,
};

constexpr int kMovesBetweenFolders = 2;
constexpr char kThisProgram[] = "/proc/self/exe";

// The kernel executes it besides the program; "" for a static one.
std::string Loader() {
  std::string loader;
  dl_iterate_phdr(
      [](dl_phdr_info* program, size_t, void* found) {
        for (const ElfW(Phdr) & part : std::span(program->dlpi_phdr, program->dlpi_phnum)) {
          if (part.p_type != PT_INTERP) continue;
          *static_cast<std::string*>(found) = reinterpret_cast<const char*>(program->dlpi_addr + part.p_vaddr);
        }
        return 1;  // the first is the program
      },
      &loader);
  return loader;
}

}  // namespace

bool CloseOwnMemory() { return prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0; }

bool RefuseWhatIsNeverNeeded() {
  SeccompFilter filter(FilterAnswer::kAllow);
  filter.Add(kRefused, FilterAnswer::kRefuse);
  return filter.Install();
}

bool CloseOtherPaths(const DaemonNeeds& needs) {
  if (LandlockVersion() < kMovesBetweenFolders || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return false;
  LandlockRules rules{.reads = true,
                      .listens = true,
                      .connects = needs.connects,
                      .written = needs.written,
                      .executed = {kThisProgram, Loader()}};
  // The symbol worker is started with it.
  rules.written.emplace_back("/dev/null");
  return RestrictByLandlock(rules);
}

Confinement ConfineDaemon(const DaemonNeeds& needs, const std::function<void()>& start_unbound) {
  Confinement confinement{.memory_closed = CloseOwnMemory(), .worker = AskKernelSupport()};
  if (!needs.runs_programs) {
    confinement.calls_refused = RefuseWhatIsNeverNeeded();
    if (confinement.worker.landlock_version >= kMovesBetweenFolders) start_unbound();
    confinement.paths_closed = CloseOtherPaths(needs);
  }
  std::string missing;
  const auto note = [&missing](bool is_there, const char* what) {
    if (!is_there) missing += (missing.empty() ? "" : "; ") + std::string(what);
  };
  note(confinement.memory_closed, "others of its user can read its memory (PR_SET_DUMPABLE)");
  note(confinement.calls_refused || needs.runs_programs, "the kernel refused its filter of system calls (seccomp)");
  note(confinement.paths_closed || needs.runs_programs, "it may write all files of its user (Landlock of 5.19 or later)");
  note(confinement.worker.has_seccomp, "the symbol worker has no filter of system calls (seccomp)");
  note(confinement.worker.landlock_version > 0, "the symbol worker has no Landlock");
  if (!missing.empty()) Log(LogLevel::kWarning, "stackd is less confined than it could be", {{"missing", missing}});
  if (needs.runs_programs) {
    Log(LogLevel::kInfo,
        "no system calls or paths are refused to the daemon: the programs that it runs would be bound, too");
  }
  return confinement;
}

}  // namespace stackd
