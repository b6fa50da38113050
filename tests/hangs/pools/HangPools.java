// Exhausts a pool: main has all that it lends, and four threads want one. HangPools hikari|commons|tomcat.
import com.zaxxer.hikari.HikariConfig;
import com.zaxxer.hikari.HikariDataSource;
import java.lang.reflect.Proxy;
import java.sql.Connection;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import javax.sql.DataSource;
import org.apache.commons.pool2.BasePooledObjectFactory;
import org.apache.commons.pool2.PooledObject;
import org.apache.commons.pool2.impl.DefaultPooledObject;
import org.apache.commons.pool2.impl.GenericObjectPool;
import org.apache.tomcat.jdbc.pool.PoolProperties;

public final class HangPools {
  private static final int SIZE = 2;
  private static final int WAITERS = 4;
  private static final int LONG_MS = 3_600_000;

  // A database that does all that a pool asks of it, and nothing else.
  private static Connection connection() {
    return (Connection)
        Proxy.newProxyInstance(
            HangPools.class.getClassLoader(),
            new Class<?>[] {Connection.class},
            (self, method, arguments) -> {
              if (method.getReturnType() == boolean.class) return method.getName().equals("isValid");
              if (method.getReturnType() == int.class) return 0;
              return null;
            });
  }

  private static DataSource database() {
    return (DataSource)
        Proxy.newProxyInstance(
            HangPools.class.getClassLoader(),
            new Class<?>[] {DataSource.class},
            (self, method, arguments) -> method.getName().equals("getConnection") ? connection() : null);
  }

  private static Callable<Object> hikari() {
    HikariConfig config = new HikariConfig();
    config.setDataSource(database());
    config.setMaximumPoolSize(SIZE);
    config.setConnectionTimeout(LONG_MS);
    return new HikariDataSource(config)::getConnection;
  }

  private static Callable<Object> commons() {
    GenericObjectPool<Object> pool =
        new GenericObjectPool<>(
            new BasePooledObjectFactory<Object>() {
              @Override
              public Object create() {
                return new Object();
              }

              @Override
              public PooledObject<Object> wrap(Object object) {
                return new DefaultPooledObject<>(object);
              }
            });
    pool.setMaxTotal(SIZE);
    return pool::borrowObject;
  }

  private static Callable<Object> tomcat() {
    PoolProperties properties = new PoolProperties();
    properties.setDataSource(database());
    properties.setMaxActive(SIZE);
    properties.setInitialSize(0);
    properties.setMaxWait(LONG_MS);
    return new org.apache.tomcat.jdbc.pool.DataSource(properties)::getConnection;
  }

  private static void placeOrder(Callable<Object> lend) {
    try {
      lend.call();
    } catch (Exception failed) {
      throw new IllegalStateException(failed);
    }
  }

  private static boolean waits(Thread thread) {
    return thread.getState() == Thread.State.WAITING || thread.getState() == Thread.State.TIMED_WAITING;
  }

  public static void main(String[] arguments) throws Exception {
    Callable<Object> lend =
        switch (arguments[0]) {
          case "hikari" -> hikari();
          case "commons" -> commons();
          default -> tomcat();
        };
    List<Object> lent = new ArrayList<>();
    for (int i = 0; i < SIZE; i++) lent.add(lend.call());
    List<Thread> waiters = new ArrayList<>();
    for (int i = 0; i < WAITERS; i++) {
      Thread waiter = new Thread(() -> placeOrder(lend), "order-" + i);
      waiter.start();
      waiters.add(waiter);
    }
    while (!waiters.stream().allMatch(HangPools::waits)) Thread.onSpinWait();
    System.out.println("ready");
    Thread.sleep(LONG_MS);
  }
}
