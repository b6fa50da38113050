// One thread in each blocking call there is; says which calls a dump interrupted.
//
//   eintr_matrix         prints "ready", waits for a line, then prints "NAME: undisturbed" or "NAME: RESULT ERRNO" for each
//   call eintr_matrix NAME    a program without threads: prints "ready" and makes that call; prints the same when it has
//   returned,
//                        or when SIGUSR1 finds it there
//   eintr_matrix --list  prints the names
//   eintr_matrix --woken FLAGS  sleeps in pause(), until SIGUSR1 calls a handler with these sa_flags and all signals
//   blocked. That one
//                        stays until the agent's signal waits for the thread. Prints "woken" when pause() has returned
//   eintr_matrix --in-turns  pairs of threads hand on a byte, and wait for it in poll() of five minutes. After a line
//   prints how
//                        many of these calls a signal has ended
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/futex.h>
#include <mqueue.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <string>
#include <thread>

namespace {

pid_t child;

// They outlive the process: RemoveIpc() takes them away.
int queue = -1;
int semaphores = -1;
int other_semaphores = -1;

void RemoveIpc() {
  msgctl(queue, IPC_RMID, nullptr);
  semctl(semaphores, 0, IPC_RMID);
  semctl(other_semaphores, 0, IPC_RMID);
}

struct Call {
  std::string name;
  std::function<long()> run;
  std::atomic<bool> returned{false};
  long result = 0;
  int error = 0;
};

std::deque<Call> calls;

void Add(const char* name, std::function<long()> run) {
  Call& call = calls.emplace_back();
  call.name = name;
  call.run = std::move(run);
}

int ReadEnd() {
  int fds[2];
  return pipe(fds) == 0 ? fds[0] : -1;
}

int FullPipe() {
  int fds[2];
  if (pipe2(fds, O_NONBLOCK) != 0) return -1;
  char block[4096] = {};
  while (write(fds[1], block, sizeof(block)) > 0) continue;
  fcntl(fds[1], F_SETFL, 0);
  return fds[1];
}

int SocketEnd(int option) {
  int fds[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds) != 0) return -1;
  timeval timeout = {60, 0};
  if (option != 0) setsockopt(fds[0], SOL_SOCKET, option, &timeout, sizeof(timeout));
  return fds[0];
}

int Listener(const char* name, int backlog, sockaddr_un* address, socklen_t* length) {
  *address = {};
  address->sun_family = AF_UNIX;
  int text = snprintf(address->sun_path + 1, sizeof(address->sun_path) - 1, "eintr-%s-%d", name, getpid());
  *length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + static_cast<size_t>(text));
  int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  if (bind(fd, reinterpret_cast<sockaddr*>(address), *length) != 0 || listen(fd, backlog) != 0) return -1;
  return fd;
}

int Accepting(const char* name) {
  sockaddr_un address;
  socklen_t length;
  return Listener(name, 1, &address, &length);
}

long ConnectToFullBacklog() {
  sockaddr_un address;
  socklen_t length;
  Listener("full", 0, &address, &length);
  auto* raw = reinterpret_cast<sockaddr*>(&address);
  if (connect(socket(AF_UNIX, SOCK_STREAM, 0), raw, length) != 0) return -2;
  return connect(socket(AF_UNIX, SOCK_STREAM, 0), raw, length);
}

int LockedFile() {
  char path[] = "/tmp/eintr-XXXXXX";
  int holder = mkstemp(path);
  flock(holder, LOCK_EX);
  struct flock whole{};
  whole.l_type = F_WRLCK;
  fcntl(holder, F_OFD_SETLK, &whole);
  int other = open(path, O_RDWR | O_CLOEXEC);
  unlink(path);
  return other;
}

timespec In60Seconds(clockid_t clock) {
  timespec at;
  clock_gettime(clock, &at);
  at.tv_sec += 60;
  return at;
}

void AddAll() {
  static const timespec k60 = {60, 0};
  static char byte;
  Add("read", [] { return read(ReadEnd(), &byte, 1); });
  Add("write", [] { return write(FullPipe(), "x", 1); });
  Add("open (FIFO)", [] {
    std::string path = "/tmp/eintr-fifo-" + std::to_string(getpid());
    mkfifo(path.c_str(), 0600);
    int fd = open(path.c_str(), O_RDONLY);
    unlink(path.c_str());
    return fd;
  });
  Add("recv", [] { return recv(SocketEnd(0), &byte, 1, 0); });
  Add("recv with SO_RCVTIMEO", [] { return recv(SocketEnd(SO_RCVTIMEO), &byte, 1, 0); });
  Add("accept", [] { return accept(Accepting("a"), nullptr, nullptr); });
  Add("accept4", [] { return accept4(Accepting("b"), nullptr, nullptr, SOCK_CLOEXEC); });
  Add("connect (backlog full)", ConnectToFullBacklog);
  Add("waitpid", [] { return waitpid(child, nullptr, 0); });
  Add("wait4", [] { return wait4(child, nullptr, 0, nullptr); });
  Add("waitid", [] {
    siginfo_t info;
    return waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT);
  });
  Add("flock", [] { return flock(LockedFile(), LOCK_EX); });
  Add("fcntl F_OFD_SETLKW", [] {
    struct flock whole{};
    whole.l_type = F_WRLCK;
    return fcntl(LockedFile(), F_OFD_SETLKW, &whole);
  });
  Add("pthread_mutex_lock", [] {
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&mutex);
    return pthread_mutex_lock(&mutex);
  });
  Add("pthread_cond_wait", [] {
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
    pthread_mutex_lock(&mutex);
    return pthread_cond_wait(&condition, &mutex);
  });
  Add("pthread_cond_timedwait", [] {
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
    pthread_mutex_lock(&mutex);
    timespec at = In60Seconds(CLOCK_REALTIME);
    return pthread_cond_timedwait(&condition, &mutex, &at);
  });
  Add("sem_wait", [] {
    static sem_t semaphore;
    sem_init(&semaphore, 0, 0);
    return sem_wait(&semaphore);
  });
  Add("sem_timedwait", [] {
    static sem_t semaphore;
    sem_init(&semaphore, 0, 0);
    timespec at = In60Seconds(CLOCK_REALTIME);
    return sem_timedwait(&semaphore, &at);
  });
  Add("futex wait", [] {
    static uint32_t word;
    return syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, nullptr, nullptr, 0);
  });
  Add("futex wait, timeout", [] {
    static uint32_t word;
    return syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &k60, nullptr, 0);
  });
  Add("nanosleep", [] { return nanosleep(&k60, nullptr); });
  Add("clock_nanosleep", [] {
    errno = clock_nanosleep(CLOCK_MONOTONIC, 0, &k60, nullptr);
    return -1;
  });
  Add("usleep", [] { return usleep(60'000'000); });
  Add("sleep", [] { return static_cast<long>(sleep(60)); });
  Add("poll", [] {
    pollfd fd = {ReadEnd(), POLLIN, 0};
    return poll(&fd, 1, 60'000);
  });
  Add("ppoll", [] {
    pollfd fd = {ReadEnd(), POLLIN, 0};
    return ppoll(&fd, 1, &k60, nullptr);
  });
  Add("select", [] {
    timeval timeout = {60, 0};
    return select(0, nullptr, nullptr, nullptr, &timeout);
  });
  Add("pselect", [] { return pselect(0, nullptr, nullptr, nullptr, &k60, nullptr); });
  Add("epoll_wait", [] {
    epoll_event event;
    return epoll_wait(epoll_create1(0), &event, 1, 60'000);
  });
  Add("pause", [] { return pause(); });
  Add("sigsuspend", [] {
    sigset_t none;
    sigemptyset(&none);
    return sigsuspend(&none);
  });
  Add("sigtimedwait", [] {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    return sigtimedwait(&set, nullptr, &k60);
  });
  Add("msgrcv", [] {
    struct {
      long type;
      char text[8];
    } message;
    return msgrcv(queue, &message, 8, 0, 0);
  });
  Add("semop", [] {
    sembuf take = {0, -1, 0};
    return semop(semaphores, &take, 1);
  });
  Add("semtimedop", [] {
    sembuf take = {0, -1, 0};
    return semtimedop(other_semaphores, &take, 1, &k60);
  });
  Add("io_getevents", [] {
    aio_context_t context = 0;
    io_event event;
    if (syscall(SYS_io_setup, 4, &context) != 0) return -2l;
    return syscall(SYS_io_getevents, context, 1, 1, &event, nullptr);
  });
  Add("mq_receive", [] {
    std::string name = "/eintr-" + std::to_string(getpid());
    mq_attr attributes{};
    attributes.mq_maxmsg = 1;
    attributes.mq_msgsize = 8;
    mqd_t queue = mq_open(name.c_str(), O_CREAT | O_RDONLY, 0600, &attributes);
    mq_unlink(name.c_str());
    if (queue < 0) return -2l;
    char text[8];
    return mq_receive(queue, text, sizeof(text), nullptr);
  });
}

const char* lone_call;

[[noreturn]] void End(int status) {
  kill(child, SIGKILL);
  RemoveIpc();
  _exit(status);
}

// Another program without an agent. No handler of fork runs, so that the daemon never hears of a second process of that
// name.
pid_t StartChild() {
  pid_t pid = _Fork();
  if (pid != 0) return pid;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  unsetenv("LD_PRELOAD");
  execlp("sleep", "sleep", "3600", nullptr);
  _exit(127);
}

void CallFromEachThread() {
  for (Call& call : calls) {
    std::thread([&call] {
      pthread_setname_np(pthread_self(), call.name.substr(0, 15).c_str());
      call.result = call.run();
      call.error = errno;
      call.returned = true;
    }).detach();
  }
  usleep(500'000);
  for (Call& call : calls) {
    if (call.returned) {
      fprintf(stderr, "%s did not block: %ld, errno %d\n", call.name.c_str(), call.result, call.error);
      End(1);
    }
  }
  puts("ready");
  fflush(stdout);
  getchar();
  usleep(300'000);
  for (Call& call : calls) {
    if (call.returned) {
      printf("%s: %ld %d\n", call.name.c_str(), call.result, call.result < 0 ? call.error : 0);
    } else {
      printf("%s: undisturbed\n", call.name.c_str());
    }
  }
  fflush(stdout);
  End(0);
}

void OnSigusr1(int) {
  char line[64];
  int length = snprintf(line, sizeof(line), "%s: undisturbed\n", lone_call);
  ssize_t written = write(STDOUT_FILENO, line, static_cast<size_t>(length));
  End(written == length ? 0 : 1);
}

void StayUntilTheAgentWakesUs(int) {
  sigset_t pending;
  do {
    sigpending(&pending);
  } while (sigismember(&pending, SIGURG) == 0);
}

void PauseUntilWoken(int flags) {
  static char alternate[64 << 10];
  const stack_t stack = {alternate, 0, sizeof(alternate)};
  if ((flags & SA_ONSTACK) != 0) sigaltstack(&stack, nullptr);
  struct sigaction action{};
  action.sa_handler = StayUntilTheAgentWakesUs;
  action.sa_flags = flags;
  sigfillset(&action.sa_mask);
  sigaction(SIGUSR1, &action, nullptr);
  puts("ready");
  fflush(stdout);
  pause();
  puts("woken");
  fflush(stdout);
  End(0);
}

std::atomic<int> ended_by_signal{0};

// Runs for 0.3 ms between its calls, so that a dump finds it now running, now asleep.
void HandOn(int from_fd, int to_fd) {
  for (;;) {
    pollfd fd = {from_fd, POLLIN, 0};
    if (poll(&fd, 1, 300'000) < 0 && errno == EINTR) ended_by_signal++;
    char byte;
    if (read(from_fd, &byte, 1) != 1) End(1);
    const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(300);
    while (std::chrono::steady_clock::now() < end) {
    }
    if (write(to_fd, &byte, 1) != 1) End(1);
  }
}

void PollInTurns() {
  for (int i = 0; i < 20; i++) {
    int there[2], back[2];
    if (pipe(there) != 0 || pipe(back) != 0 || write(there[1], "", 1) != 1) End(1);
    std::thread(HandOn, there[0], back[1]).detach();
    std::thread(HandOn, back[0], there[1]).detach();
  }
  puts("ready");
  fflush(stdout);
  getchar();
  printf("%d\n", ended_by_signal.load());
  fflush(stdout);
  End(0);
}

void CallFromTheOnlyThread(const char* name) {
  auto call = std::find_if(calls.begin(), calls.end(), [name](const Call& each) { return each.name == name; });
  if (call == calls.end()) {
    fprintf(stderr, "eintr_matrix: no call is named '%s'\n", name);
    End(2);
  }
  lone_call = name;
  struct sigaction action{};
  action.sa_handler = OnSigusr1;
  sigaction(SIGUSR1, &action, nullptr);
  puts("ready");
  fflush(stdout);
  errno = 0;
  long result = call->run();
  printf("%s: %ld %d\n", name, result, result < 0 ? errno : 0);
  fflush(stdout);
  End(0);
}

}  // namespace

int main(int argc, char** argv) {
  child = StartChild();
  queue = msgget(IPC_PRIVATE, 0600);
  semaphores = semget(IPC_PRIVATE, 1, 0600);
  other_semaphores = semget(IPC_PRIVATE, 1, 0600);
  AddAll();
  if (argc > 1 && strcmp(argv[1], "--list") == 0) {
    for (const Call& call : calls) puts(call.name.c_str());
    fflush(stdout);
    End(0);
  }
  if (argc > 2 && strcmp(argv[1], "--woken") == 0) PauseUntilWoken(atoi(argv[2]));
  if (argc > 1 && strcmp(argv[1], "--in-turns") == 0) PollInTurns();
  if (argc > 1) CallFromTheOnlyThread(argv[1]);
  CallFromEachThread();
}
