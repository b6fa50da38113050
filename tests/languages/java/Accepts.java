import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;

/** Waits for a connection without a time limit; for each line it connects, and says how the wait ended. */
public class Accepts {
  static volatile String ended = "waits";

  static void waitForever(ServerSocket server) {
    try (Socket accepted = server.accept()) {
      ended = "accepted";
    } catch (IOException error) {
      ended = error.toString();
    }
  }

  public static void main(String[] arguments) throws Exception {
    ServerSocket server = new ServerSocket(0, 1, InetAddress.getLoopbackAddress());
    Thread thread = new Thread(() -> waitForever(server), "accept");
    thread.start();
    System.out.println("ready");
    System.in.read();
    try (Socket socket = new Socket(server.getInetAddress(), server.getLocalPort())) {
      thread.join();
    }
    System.out.println(ended);
  }
}
