import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.concurrent.CyclicBarrier;

/** As app.py. */
public class App {
  static final Object FIRST = new Object(), SECOND = new Object();

  static void standsStill() {
    try {
      Thread.sleep(10_000_000);
    } catch (InterruptedException e) {
      throw new RuntimeException(e);
    }
  }

  static void lockCrosswise(Object one, Object other, CyclicBarrier both) {
    synchronized (one) {
      try {
        both.await();
      } catch (Exception e) {
        throw new RuntimeException(e);
      }
      synchronized (other) {
        System.out.println("not reached");
      }
    }
  }

  static void writeNowhere() throws Exception {
    java.lang.reflect.Field field = sun.misc.Unsafe.class.getDeclaredField("theUnsafe");
    field.setAccessible(true);
    ((sun.misc.Unsafe) field.get(null)).putAddress(0x10, 1);
  }

  static void obey() throws Exception {
    String word = new BufferedReader(new InputStreamReader(System.in)).readLine();
    if ("crash".equals(word)) writeNowhere();
    if ("hang".equals(word)) {
      CyclicBarrier both = new CyclicBarrier(2);
      new Thread(() -> lockCrosswise(FIRST, SECOND, both)).start();
      new Thread(() -> lockCrosswise(SECOND, FIRST, both)).start();
    }
    Thread.sleep(10_000_000);
  }

  public static void main(String[] arguments) throws Exception {
    new Thread(App::standsStill).start();
    System.out.println("ready");
    obey();
  }
}
