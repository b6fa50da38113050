import java.util.concurrent.locks.LockSupport;
import java.util.concurrent.locks.ReentrantLock;

/**
 * Threads that take two monitors in turn, and others two locks, and never one inside of the other: no thread can wait for ever.
 */
public class Turns {
  static final long HOLD_NS = 50_000;
  static final Object[] MONITORS = {new Object(), new Object()};
  static final ReentrantLock[] LOCKS = {new ReentrantLock(), new ReentrantLock()};

  static void monitors(int first) {
    for (int at = first; ; at = 1 - at) {
      synchronized (MONITORS[at]) {
        LockSupport.parkNanos(HOLD_NS);
      }
    }
  }

  static void locks(int first) {
    for (int at = first; ; at = 1 - at) {
      LOCKS[at].lock();
      LockSupport.parkNanos(HOLD_NS);
      LOCKS[at].unlock();
    }
  }

  public static void main(String[] arguments) {
    for (int i = 0; i < 4; i++) {
      final int first = i % 2;
      new Thread(() -> monitors(first)).start();
      new Thread(() -> locks(first)).start();
    }
    System.out.println("ready");
  }
}
