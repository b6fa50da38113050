import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;

/**
 * Compiles, collects, loads classes, throws, reflects, and starts and ends threads all the time, on threads whose outermost
 * functions are known.
 */
public class Churn {
  static volatile long sink;

  static int throwFrom(int depth, String nothing) {
    return depth == 0 ? nothing.length() : throwFrom(depth - 1, nothing) + 1;
  }

  static void reflect() {
    while (true) {
      try {
        Object made = Class.forName("java.util.ArrayList").getDeclaredConstructor().newInstance();
        sink += made.hashCode();
        throwFrom(50, null);
      } catch (NullPointerException e) {
        sink++;
      } catch (ReflectiveOperationException e) {
        throw new RuntimeException(e);
      }
    }
  }

  static void allocate() {
    Map<String, byte[]> map = new HashMap<>();
    for (long i = 0; true; i++) map.put("key" + i % 1000, new byte[4096]);
  }

  static void sort() {
    Random random = new Random(1);
    while (true) {
      List<Integer> list = new ArrayList<>();
      for (int i = 0; i < 2000; i++) list.add(random.nextInt());
      list.sort((a, b) -> Integer.compare(b, a));
      sink += Arrays.asList(3, 2, 1).stream().sorted().map(x -> x + 1).mapToInt(x -> x).sum();
    }
  }

  public interface Loaded {
    void run();
  }

  // A loader of its own each time: classes come and go.
  static void load() {
    while (true) {
      ClassLoader loader = new ClassLoader(Churn.class.getClassLoader()) {};
      ((Loaded) Proxy.newProxyInstance(loader, new Class<?>[] {Loaded.class}, (proxy, method, values) -> null)).run();
    }
  }

  // Some at a time; they live for a moment.
  static void spawn() {
    while (true) {
      Thread[] threads = new Thread[4];
      for (int i = 0; i < threads.length; i++) threads[i] = start("brief", Churn::brief);
      try {
        for (Thread thread : threads) thread.join();
      } catch (InterruptedException e) {
        throw new RuntimeException(e);
      }
    }
  }

  static void brief() {
    for (int i = 0; i < 100_000; i++) sink += i;
  }

  static Thread start(String name, Runnable body) {
    Thread thread = new Thread(body, name);
    thread.setDaemon(true);
    thread.start();
    return thread;
  }

  public static void main(String[] arguments) throws Exception {
    start("reflect", Churn::reflect);
    start("allocate", Churn::allocate);
    start("sort", Churn::sort);
    start("load", Churn::load);
    start("spawn", Churn::spawn);
    System.out.println("ready");
    while (System.in.read() != 'q') {}
    System.out.println("well " + (sink != 0));
  }
}
