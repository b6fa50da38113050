import java.lang.management.GarbageCollectorMXBean;
import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;

/**
 * Collects garbage nearly all the time, while threads stand and run where it is known. Says for how many per cent of the
 * time it did.
 */
public class Collects {
  static final List<Object> KEPT = new ArrayList<>();
  static final Object NEVER = new Object();
  static final CountDownLatch IN_PLACE = new CountDownLatch(4);
  static volatile long sink;

  static int recurse(int depth, Runnable end) {
    if (depth > 0) return recurse(depth - 1, end) + 1;
    end.run();
    return 0;
  }

  static void compute() {
    IN_PLACE.countDown();
    while (true) sink++;
  }

  static void allocate() {
    IN_PLACE.countDown();
    while (true) sink += new byte[1000].length;
  }

  static void sleep() {
    IN_PLACE.countDown();
    synchronized (NEVER) {
      while (true) {
        try {
          NEVER.wait();
        } catch (InterruptedException e) {
          throw new RuntimeException(e);
        }
      }
    }
  }

  static void collect() {
    IN_PLACE.countDown();
    while (true) System.gc();
  }

  static void start(Runnable body, String name) {
    Thread thread = new Thread(() -> recurse(20, body), name);
    thread.setDaemon(true);
    thread.start();
  }

  static long collectedMs() {
    long sum = 0;
    for (GarbageCollectorMXBean bean : ManagementFactory.getGarbageCollectorMXBeans()) sum += bean.getCollectionTime();
    return sum;
  }

  public static void main(String[] arguments) throws Exception {
    for (int i = 0; i < 500_000; i++) KEPT.add(new int[] {i});
    start(Collects::compute, "compute");
    start(Collects::allocate, "allocate");
    start(Collects::sleep, "sleep");
    start(Collects::collect, "collect");
    IN_PLACE.await();
    long beginNs = System.nanoTime(), beginMs = collectedMs();
    System.out.println("ready");
    System.in.read();
    System.out.println("collected " + (collectedMs() - beginMs) * 100_000_000 / (System.nanoTime() - beginNs));
  }
}
