/** Virtual threads, by reflection so that older compilers take it: one that spins on a carrier, and many that sleep. */
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

  static void start(Runnable body) throws Exception {
    Thread.class.getMethod("startVirtualThread", Runnable.class).invoke(null, body);
  }

  public static void main(String[] arguments) throws Exception {
    for (int i = 0; i < 100; i++) {
      start(() -> {
        while (true) pause();
      });
    }
    start(Virtual::spin);
    while (woken == 0) Thread.sleep(1);
    System.out.println("ready");
    Thread.sleep(1_000_000);
  }
}
