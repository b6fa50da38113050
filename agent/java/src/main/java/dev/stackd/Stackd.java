package dev.stackd;

import java.nio.file.Path;

/**
 * The agent of stackd, as seen from Java. Stacks, locks and crashes need none of it: loading the agent is enough
 * (-agentpath:/usr/lib/libstackd_java.so, or LD_PRELOAD).
 *
 * <p>Nothing here fails the program: where the agent is not loaded, or switched off (STACKD_DISABLE=1), every call does
 * nothing. All methods may be called on any thread.
 */
public final class Stackd {
  private static volatile boolean loaded = tryLoaded();

  private Stackd() {}

  /** Loads the agent, where neither -agentpath nor LD_PRELOAD did. False: it could not be loaded. */
  public static boolean load(Path library) {
    try {
      System.load(library.toAbsolutePath().toString());
      loaded = true;
    } catch (UnsatisfiedLinkError absent) {
      return false;
    }
    return true;
  }

  /** Whether calls here do anything. */
  public static boolean isLoaded() {
    return loaded;
  }

  /** The name of this process in {@code stackctl ps} and in dumps. */
  public static void setProcessName(String name) {
    if (loaded) setProcessName0(name);
  }

  /** Names the calling thread, as {@link Thread#setName} does: whole in dumps, its first 15 bytes for the kernel. */
  public static void nameThread(String name) {
    if (loaded && name != null) Thread.currentThread().setName(name);
  }

  /**
   * Asks the daemon for a dump of this process and waits until its threads were captured, at most {@code timeoutMs}; 0
   * does not wait. False: there is no daemon, or it was not done in time.
   */
  public static boolean dumpNow(int timeoutMs) {
    return loaded && dumpNow0(timeoutMs) == 0;
  }

  /**
   * A promise that a piece of work comes round again within {@code limitMs} (10 at least). Where it is broken the daemon
   * takes a dump, with the thread that registered it first. Watched from the first beat on.
   */
  public static Heartbeat heartbeat(String name, int limitMs) {
    return new Heartbeat(loaded ? registerHeartbeat0(name, limitMs) : 0);
  }

  /** See {@link #heartbeat}. */
  public static final class Heartbeat implements AutoCloseable {
    private long handle;

    private Heartbeat(long handle) {
      this.handle = handle;
    }

    /** "I am alive." */
    public synchronized void beat() {
      if (handle != 0) beat0(handle);
    }

    /** Not watched until the next beat: before a wait for work that may last. */
    public synchronized void suspend() {
      if (handle != 0) suspendHeartbeat0(handle);
    }

    /** Not watched any more. */
    @Override
    public synchronized void close() {
      if (handle != 0) unregisterHeartbeat0(handle);
      handle = 0;
    }
  }

  // A library that -agentpath loaded is one whose functions every class finds; what LD_PRELOAD loaded is not.
  private static boolean tryLoaded() {
    try {
      isInstalled0();
      return true;
    } catch (UnsatisfiedLinkError absent) {
      return false;
    }
  }

  private static native void isInstalled0();

  private static native int setProcessName0(String name);

  private static native int dumpNow0(int timeoutMs);

  private static native long registerHeartbeat0(String name, int limitMs);

  private static native void beat0(long handle);

  private static native void suspendHeartbeat0(long handle);

  private static native void unregisterHeartbeat0(long handle);
}
