/**
 * Virtual threads, by reflection so that older compilers take it: one that spins on a carrier, and many that sleep. Says the
 * number of the former.
 */
public class Virtual {
  static volatile long count;
  static volatile int woken;

  static void spin() {
    // Parked once: what is on its carrier's stack then was put back there.
    pause();
    woken = 1;
    while (true) count++;
  }

  static void pause() {
    try {
      Thread.sleep(10);
    } catch (InterruptedException e) {
      throw new RuntimeException(e);
    }
  }

  static Thread start(String name, Runnable body) throws Exception {
    Object builder = Thread.class.getMethod("ofVirtual").invoke(null);
    Class<?> type = Class.forName("java.lang.Thread$Builder");
    type.getMethod("name", String.class).invoke(builder, name);
    return (Thread) type.getMethod("start", Runnable.class).invoke(builder, body);
  }

  public static void main(String[] arguments) throws Exception {
    for (int i = 0; i < 100; i++) {
      start("sleeper", () -> {
        while (true) pause();
      });
    }
    Thread spinner = start("spinner", Virtual::spin);
    while (woken == 0) Thread.sleep(1);
    System.out.println("ready " + spinner.getId());
    Thread.sleep(1_000_000);
  }
}
