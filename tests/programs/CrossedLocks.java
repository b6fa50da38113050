// Two threads, each with the monitor that the other one wants. Says "ready" when both wait.
public class CrossedLocks {
  private static final Object accounts = new Object();
  private static final Object orders = new Object();
  private static final java.util.concurrent.CyclicBarrier bothHoldOne = new java.util.concurrent.CyclicBarrier(2);

  private static Thread start(String name, Object first, Object second) {
    Thread thread = new Thread(() -> takeBoth(first, second), name);
    thread.start();
    return thread;
  }

  private static void takeBoth(Object first, Object second) {
    synchronized (first) {
      try {
        bothHoldOne.await();
      } catch (Exception error) {
        throw new IllegalStateException(error);
      }
      synchronized (second) {
        System.exit(1);
      }
    }
  }

  public static void main(String[] arguments) throws Exception {
    Thread one = start("transfer", accounts, orders);
    Thread other = start("refund", orders, accounts);
    while (one.getState() != Thread.State.BLOCKED || other.getState() != Thread.State.BLOCKED) Thread.sleep(1);
    System.out.println("ready");
  }
}
