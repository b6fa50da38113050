/** What the VM itself recovers from by its handlers of signals. Prints how often. */
public class Survives {
  static int overflow(int depth) {
    return overflow(depth + 1) + 1;
  }

  public static void main(String[] arguments) throws Exception {
    int nulls = 0, overflows = 0;
    for (int i = 0; i < 200_000; i++) {
      try {
        ((String) (i >= 0 ? null : "text")).length();
      } catch (NullPointerException e) {
        nulls++;
      }
    }
    for (int i = 0; i < 20; i++) {
      try {
        overflow(0);
      } catch (StackOverflowError e) {
        overflows++;
      }
    }
    System.out.println(nulls + " " + overflows);
  }
}
