import java.net.ServerSocket;
import java.net.Socket;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;
import java.util.concurrent.locks.ReentrantReadWriteLock;

/** Programs of Java that hang, and some that are well: modes, as hang.h has them. */
public class HangJava {
  interface Body {
    void run() throws Exception;
  }

  private static final List<Thread> STARTED = new ArrayList<>();

  private static Thread start(String name, Body body) {
    Thread thread = new Thread(() -> {
      try {
        body.run();
      } catch (Exception error) {
        throw new IllegalStateException(error);
      }
    }, name);
    thread.start();
    STARTED.add(thread);
    return thread;
  }

  private static void awaitStates(Thread.State... states) throws InterruptedException {
    List<Thread.State> wanted = Arrays.asList(states);
    for (int quietLooks = 0; quietLooks < 20; Thread.sleep(5)) {
      quietLooks = STARTED.stream().allMatch(thread -> wanted.contains(thread.getState())) ? quietLooks + 1 : 0;
    }
  }

  // --- that hang ---

  private static void monitorCycle() throws Exception {
    int count = 3;
    Object[] locks = {new Object(), new Object(), new Object()};
    CyclicBarrier allHoldOne = new CyclicBarrier(count);
    for (int i = 0; i < count; i++) {
      Object own = locks[i], next = locks[(i + 1) % count];
      start("cycle-" + i, () -> {
        synchronized (own) {
          allHoldOne.await();
          synchronized (next) {
            System.exit(1);
          }
        }
      });
    }
    awaitStates(Thread.State.BLOCKED);
  }

  private static void monitorAndLock() throws Exception {
    Object monitor = new Object();
    ReentrantLock lock = new ReentrantLock();
    CyclicBarrier bothHoldOne = new CyclicBarrier(2);
    start("monitor-first", () -> {
      synchronized (monitor) {
        bothHoldOne.await();
        lock.lock();
      }
    });
    start("lock-first", () -> {
      lock.lock();
      bothHoldOne.await();
      synchronized (monitor) {
        System.exit(1);
      }
    });
    awaitStates(Thread.State.BLOCKED, Thread.State.WAITING);
  }

  private static void ownerReads() throws Exception {
    Object connection = new Object();
    CountDownLatch held = new CountDownLatch(1);
    ServerSocket server = new ServerSocket(0);
    Socket client = new Socket("127.0.0.1", server.getLocalPort());
    Thread owner = start("owner", () -> {
      synchronized (connection) {
        held.countDown();
        client.getInputStream().read();
      }
    });
    held.await();
    STARTED.remove(owner);
    for (int i = 0; i < 3; i++) {
      start("waiter-" + i, () -> {
        synchronized (connection) {
          System.exit(1);
        }
      });
    }
    awaitStates(Thread.State.BLOCKED);
  }

  private static void readThenWrite() throws Exception {
    ReentrantReadWriteLock lock = new ReentrantReadWriteLock();
    start("upgrader", () -> {
      lock.readLock().lock();
      lock.writeLock().lock();
    });
    awaitStates(Thread.State.WAITING);
  }

  private static void poolNested() throws Exception {
    ExecutorService pool = Executors.newFixedThreadPool(2);
    CyclicBarrier bothRun = new CyclicBarrier(2);
    for (int i = 0; i < 2; i++) {
      pool.submit(() -> {
        bothRun.await();
        return pool.submit(() -> 1).get();
      });
    }
    Thread.sleep(200);
  }

  /** The only worker waits for a task that it should run itself. */
  private static void workerOfOne() throws Exception {
    ExecutorService pool = Executors.newSingleThreadExecutor();
    pool.submit(() -> CompletableFuture.supplyAsync(HangJava::work, pool).join());
    Thread.sleep(200);
  }

  static final CyclicBarrier BOTH_BEGAN = new CyclicBarrier(2);

  private static void awaitOther() {
    try {
      BOTH_BEGAN.await();
    } catch (Exception error) {
      throw new IllegalStateException(error);
    }
  }

  static class Prices {
    static int of;

    static {
      awaitOther();
      of = Taxes.on + 1;
    }
  }

  static class Taxes {
    static int on;

    static {
      awaitOther();
      on = Prices.of + 1;
    }
  }

  static final CyclicBarrier THREE_BEGAN = new CyclicBarrier(3);

  private static int awaitTwo() {
    try {
      return THREE_BEGAN.await();
    } catch (Exception error) {
      throw new IllegalStateException(error);
    }
  }

  static class Orders {
    static int of = awaitTwo() + Stock.of;
  }

  static class Stock {
    static int of = awaitTwo() + Fees.of;
  }

  static class Fees {
    static int of = awaitTwo() + Orders.of;
  }

  private static void classInitializationOf3() throws Exception {
    start("orders-first", () -> System.exit(Orders.of));
    start("stock-first", () -> System.exit(Stock.of));
    start("fees-first", () -> System.exit(Fees.of));
    Thread.sleep(200);
    while (THREE_BEGAN.getNumberWaiting() != 0) Thread.sleep(1);
  }

  private static void classInitialization() throws Exception {
    start("prices-first", () -> System.exit(Prices.of));
    start("taxes-first", () -> System.exit(Taxes.on));
    while (BOTH_BEGAN.getNumberWaiting() != 0) Thread.sleep(1);
  }

  /** All connections are taken by threads that want a second one. */
  private static void connectionPool() throws Exception {
    ArrayBlockingQueue<Integer> connections = new ArrayBlockingQueue<>(2, false, Arrays.asList(1, 2));
    CyclicBarrier bothHaveOne = new CyclicBarrier(2);
    for (int i = 0; i < 2; i++) {
      start("query-" + i, () -> {
        int first = connections.take();
        bothHaveOne.await();
        int second = connections.take();
        connections.add(first + second);
      });
    }
    awaitStates(Thread.State.WAITING);
  }

  // --- that are well ---

  private static void idlePool() throws Exception {
    ExecutorService pool = Executors.newFixedThreadPool(4);
    for (int i = 0; i < 4; i++) pool.submit(HangJava::work).get();
  }

  /** A class takes its time, and others wait for it. */
  static class Slow {
    static int of;

    static {
      try {
        Thread.sleep(3600_000);
      } catch (InterruptedException error) {
        of = 1;
      }
    }
  }

  private static void slowClass() throws Exception {
    Thread first = start("first", () -> System.exit(Slow.of));
    awaitStates(Thread.State.TIMED_WAITING);
    STARTED.remove(first);
    start("second", () -> System.exit(Slow.of));
    Thread.sleep(200);
  }

  /** Workers of one pool wait for those of another, which are at work. */
  private static void poolOfPools() throws Exception {
    ExecutorService outer = Executors.newFixedThreadPool(2), inner = Executors.newFixedThreadPool(2);
    CyclicBarrier atWork = new CyclicBarrier(3);
    for (int i = 0; i < 2; i++) {
      outer.submit(() -> inner.submit(() -> {
        atWork.await();
        Thread.sleep(3600_000);
        return 1;
      }).get());
    }
    atWork.await();
  }

  /** The common pool is at work for the only worker of another. */
  private static void workerOfCommonPool() throws Exception {
    ExecutorService pool = Executors.newSingleThreadExecutor();
    CountDownLatch atWork = new CountDownLatch(1);
    pool.submit(() -> CompletableFuture.runAsync(() -> {
      atWork.countDown();
      try {
        Thread.sleep(3600_000);
      } catch (InterruptedException error) {
        throw new IllegalStateException(error);
      }
    }).join());
    atWork.await();
    Thread.sleep(200);
  }

  private static void manyReaders() throws Exception {
    ReentrantReadWriteLock lock = new ReentrantReadWriteLock();
    for (int i = 0; i < 3; i++) {
      start("reader-" + i, () -> {
        lock.readLock().lock();
        Thread.sleep(3600_000);
      });
    }
    awaitStates(Thread.State.TIMED_WAITING);
  }

  private static int work() {
    return 1;
  }

  private static void conditions() throws Exception {
    ReentrantLock lock = new ReentrantLock();
    Condition changed = lock.newCondition();
    Object monitor = new Object();
    start("of-lock", () -> {
      lock.lock();
      while (true) changed.await();
    });
    start("of-monitor", () -> {
      synchronized (monitor) {
        while (true) monitor.wait();
      }
    });
    awaitStates(Thread.State.WAITING);
  }

  private static void timedLock() throws Exception {
    ReentrantLock lock = new ReentrantLock();
    CountDownLatch held = new CountDownLatch(1);
    start("owner", () -> {
      lock.lock();
      held.countDown();
      Thread.sleep(3600_000);
    });
    held.await();
    start("patient", () -> lock.tryLock(1, TimeUnit.HOURS));
    awaitStates(Thread.State.TIMED_WAITING);
  }

  public static void main(String[] arguments) throws Exception {
    switch (arguments[0]) {
      case "monitor_cycle": monitorCycle(); break;
      case "monitor_and_lock": monitorAndLock(); break;
      case "owner_reads": ownerReads(); break;
      case "read_then_write": readThenWrite(); break;
      case "class_initialization": classInitialization(); break;
      case "class_initialization_of_3": classInitializationOf3(); break;
      case "worker_of_one": workerOfOne(); break;
      case "slow_class": slowClass(); break;
      case "pool_of_pools": poolOfPools(); break;
      case "worker_of_common_pool": workerOfCommonPool(); break;
      case "many_readers": manyReaders(); break;
      case "connection_pool": connectionPool(); break;
      case "pool_nested": poolNested(); break;
      case "idle_pool": idlePool(); break;
      case "conditions": conditions(); break;
      case "timed_lock": timedLock(); break;
      default: throw new IllegalArgumentException(arguments[0]);
    }
    System.out.println("ready");
    Thread.currentThread().join();
  }
}
