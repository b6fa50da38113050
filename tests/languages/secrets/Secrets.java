import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.locks.ReentrantLock;

/** A string and a number in every kind of place that a program of Java has for values; threads wait for locks, one runs. */
public class Secrets {
  /** A lock that has a value, and a name that tells it. */
  static class Lock extends ReentrantLock {
    final String text;
    final long number;

    Lock(String text, long number) {
      this.text = text;
      this.number = number;
    }
  }

  static volatile long sink;
  final Map<String, Object> copies = new HashMap<>();

  void keep(Lock lock, String text, long number, CountDownLatch begun) {
    String local = text + "!" + number;
    copies.put(text, new Object[] {number, text.getBytes(), local});
    try {
      throw new IllegalStateException(text);
    } catch (IllegalStateException error) {
      synchronized (text) {
        begun.countDown();
        lock.lock();
        sink += error.hashCode() + local.length();
      }
    }
  }

  static void spin(String text, long number, CountDownLatch begun) {
    String local = text + number;
    begun.countDown();
    while (!local.isEmpty()) sink += number ^ local.length();
  }

  public static void main(String[] arguments) throws Exception {
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
    String text = in.readLine();
    long number = Long.parseUnsignedLong(in.readLine(), 16);
    Lock lock = new Lock(text, number);
    lock.lock();
    CountDownLatch begun = new CountDownLatch(3);
    Secrets keeper = new Secrets();
    for (Runnable body : new Runnable[] {() -> keeper.keep(lock, text, number, begun), () -> spin(text, number, begun),
                                         () -> keeper.keep(lock, text, number, begun)}) {
      Thread thread = new Thread(body);
      thread.setDaemon(true);
      thread.start();
      if (begun.getCount() == 3) Thread.sleep(100);
    }
    while (begun.getCount() > 1) Thread.sleep(10);
    System.out.println("ready");
    in.readLine();
    System.out.println(keeper.copies.size());
  }
}
