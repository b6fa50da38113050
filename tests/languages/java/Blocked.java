import java.util.Arrays;
import java.util.concurrent.locks.ReentrantLock;

/** Threads that stand where it is known, each in another way. Says "ready" when they do. */
public class Blocked {
  static final Object LEFT = new Object(), RIGHT = new Object();
  static final ReentrantLock FIRST = new ReentrantLock(), SECOND = new ReentrantLock();
  static volatile int holding;
  static volatile boolean stop;
  static int sink;

  static void await(int holders) {
    while (holding < holders) Thread.yield();
  }

  static synchronized void hold() {
    holding++;
  }

  static void leftThenRight() {
    synchronized (LEFT) {
      hold();
      await(4);
      synchronized (RIGHT) {
        sink++;
      }
    }
  }

  static void rightThenLeft() {
    synchronized (RIGHT) {
      hold();
      await(4);
      synchronized (LEFT) {
        sink++;
      }
    }
  }

  static void firstThenSecond() {
    FIRST.lock();
    hold();
    await(4);
    SECOND.lock();
  }

  static void secondThenFirst() {
    SECOND.lock();
    hold();
    await(4);
    FIRST.lock();
  }

  // A loop that counts has no safepoint in it once it is compiled.
  static void count() {
    while (!stop) sink = countOnce(sink);
  }

  static int countOnce(int seed) {
    int r = seed;
    for (int i = 0; i < 1_000_000_000; i++) r = r * 31 + i ^ (r >> 3);
    return r;
  }

  static int recurse(int depth) {
    if (depth == 0) {
      sleep();
      return 0;
    }
    return recurse(depth - 1) + 1;
  }

  static void sleep() {
    try {
      Thread.sleep(1_000_000);
    } catch (InterruptedException e) {
      throw new RuntimeException(e);
    }
  }

  static void accept() {
    try {
      // Not a ServerSocket's: in release 11 that one waits in poll(), and takes the end of it by a signal for a timeout.
      java.nio.channels.ServerSocketChannel.open().bind(null).accept();
    } catch (java.io.IOException e) {
      throw new RuntimeException(e);
    }
  }

  static void stream() {
    Arrays.asList(1, 2, 3).stream().map(x -> { if (x == 2) sleep(); return x; }).forEach(x -> {});
  }

  static Thread start(String name, Runnable body) {
    Thread thread = new Thread(body, name);
    thread.setDaemon(true);
    thread.start();
    return thread;
  }

  public static void main(String[] arguments) throws Exception {
    Thread[] waiting = {
      start("monitor-left", Blocked::leftThenRight), start("monitor-right", Blocked::rightThenLeft),
      start("lock-first", Blocked::firstThenSecond), start("lock-second", Blocked::secondThenFirst),
      start("a thread with a long name", () -> recurse(100)), start("stream", Blocked::stream)
    };
    start("accept", Blocked::accept);
    if (arguments.length == 0) start("count", Blocked::count);
    for (int i = 0; i < Integer.getInteger("idle", 0); i++) start("idle-" + i, Blocked::sleep);
    for (Thread thread : waiting) {
      while (thread.getState() == Thread.State.RUNNABLE || thread.getState() == Thread.State.NEW) Thread.sleep(1);
    }
    for (int i = 0; i < Integer.getInteger("collections", 0); i++) System.gc();
    System.out.println("ready");
    sleep();
  }
}
