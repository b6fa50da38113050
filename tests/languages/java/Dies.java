import java.util.ArrayList;
import java.util.List;

/** Ends as it is told, or nearly: "segv", "library PATH" (of native.cc), "heap" (caught), "exhaust" (not caught). */
public class Dies {
  static void writeNowhere() throws Exception {
    java.lang.reflect.Field field = sun.misc.Unsafe.class.getDeclaredField("theUnsafe");
    field.setAccessible(true);
    ((sun.misc.Unsafe) field.get(null)).putAddress(0x10, 1);
  }

  static native void crashInLibrary();

  static int fillHeap() {
    List<byte[]> all = new ArrayList<>();
    try {
      while (true) all.add(new byte[10_000_000]);
    } catch (OutOfMemoryError e) {
      return all.size();
    }
  }

  static void exhaust() {
    List<byte[]> all = new ArrayList<>();
    while (true) all.add(new byte[10_000_000]);
  }

  public static void main(String[] arguments) throws Exception {
    System.out.println("ready");
    System.in.read();
    if (arguments[0].equals("segv")) writeNowhere();
    if (arguments[0].equals("library")) {
      System.load(arguments[1]);
      crashInLibrary();
    }
    if (arguments[0].equals("exhaust")) exhaust();
    if (arguments[0].equals("heap")) System.out.println("caught " + (fillHeap() > 0));
    System.in.read();
  }
}
