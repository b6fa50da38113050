// An HTTP server as Java programs are: a pool of workers, a lock that they share, garbage for the collector. Says
// "ready PORT".
//
//   java -Xmx96m BusyServer.java            waits for requests
//   java -Xmx96m BusyServer.java compute    one more thread computes without a break
import com.sun.net.httpserver.HttpServer;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.util.ArrayDeque;
import java.util.concurrent.Executors;

public class BusyServer {
  private static final int KEPT = 2000;
  private static final ArrayDeque<byte[]> kept = new ArrayDeque<>();
  private static volatile long sink;

  // Some objects grow old before they die, so that whole collections are needed as well.
  private static synchronized int remember(byte[] block) {
    kept.add(block);
    if (kept.size() > KEPT) kept.remove();
    return kept.size();
  }

  private static int answer() {
    int size = 0;
    for (int i = 0; i < 50; i++) size = remember(new byte[10_000]);
    return size;
  }

  private static void compute() {
    long value = 1;
    for (;;) {
      value = value * 6364136223846793005L + 1442695040888963407L;
      sink = value;
    }
  }

  public static void main(String[] arguments) throws Exception {
    HttpServer server = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 64);
    server.setExecutor(Executors.newFixedThreadPool(16));
    server.createContext("/", exchange -> {
      byte[] body = String.format("well %08d\n", answer()).getBytes();
      exchange.sendResponseHeaders(200, body.length);
      exchange.getResponseBody().write(body);
      exchange.close();
    });
    server.start();
    if (arguments.length > 0) new Thread(BusyServer::compute, "compute").start();
    System.out.println("ready " + server.getAddress().getPort());
  }
}
