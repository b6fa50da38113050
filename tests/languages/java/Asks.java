import dev.stackd.Stackd;
import java.io.BufferedReader;
import java.io.InputStreamReader;

/** Calls dev.stackd.Stackd as each line says, and says when it has. */
public class Asks {
  static Stackd.Heartbeat heartbeat;

  static boolean dump() {
    return Stackd.dumpNow(60_000);
  }

  public static void main(String[] arguments) throws Exception {
    System.out.println("ready");
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      String[] words = line.split(" ", 2);
      String answer = words[0];
      switch (words[0]) {
        case "loaded": answer += " " + Stackd.isLoaded(); break;
        case "process": Stackd.setProcessName(words[1]); break;
        case "thread": Stackd.nameThread(words[1]); break;
        case "dump": answer += " " + dump(); break;
        case "heartbeat": heartbeat = Stackd.heartbeat("orders", 50); break;
        case "beat": heartbeat.beat(); break;
        case "suspend": heartbeat.suspend(); break;
        case "close": heartbeat.close(); break;
      }
      System.out.println(answer);
    }
  }
}
