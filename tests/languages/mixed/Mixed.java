/** Java calls C++, which calls Java, which waits. Argument: the library of mixed_java.cc. */
public final class Mixed {
  private static native void throughCpp();

  static void calledBack() throws java.io.IOException {
    innermost();
  }

  static void innermost() throws java.io.IOException {
    StackTraceElement[] own = new Throwable().getStackTrace();
    for (StackTraceElement frame : own) {
      System.out.println("own " + frame.getMethodName() + " " + (frame == own[0] ? 0 : frame.getLineNumber()));
    }
    System.out.println("ready");
    System.out.flush();
    System.in.read();
  }

  static void outermost() {
    throughCpp();
  }

  public static void main(String[] arguments) {
    System.load(arguments[0]);
    outermost();
  }
}
