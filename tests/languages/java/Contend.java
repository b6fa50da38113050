import java.util.concurrent.locks.ReentrantLock;

/**
 * Threads that wait for each other's locks all the time, and never in a circle: all take them in one order. With "collects"
 * the objects are moved all the time.
 */
public class Contend {
  static final Object OUTER = new Object(), INNER = new Object();
  static final ReentrantLock FIRST = new ReentrantLock(), SECOND = new ReentrantLock();
  static volatile long sink;

  static void work(int rounds) {
    for (int i = 0; i < rounds; i++) sink += i;
  }

  static void monitors() {
    while (true) {
      synchronized (OUTER) {
        work(3000);
        synchronized (INNER) {
          work(3000);
        }
      }
    }
  }

  static void innerMonitor() {
    while (true) {
      synchronized (INNER) {
        work(3000);
      }
      work(500);
    }
  }

  static void locks() {
    while (true) {
      FIRST.lock();
      SECOND.lock();
      work(3000);
      SECOND.unlock();
      FIRST.unlock();
    }
  }

  static void collect() {
    while (true) System.gc();
  }

  public static void main(String[] arguments) {
    for (int i = 0; i < 3; i++) {
      new Thread(Contend::monitors).start();
      new Thread(Contend::innerMonitor).start();
      new Thread(Contend::locks).start();
    }
    if (Boolean.getBoolean("collects")) new Thread(Contend::collect).start();
    System.out.println("ready");
  }
}
