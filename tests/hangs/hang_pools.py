"""Exhausts a pool: the program has all that it lends, and four threads want one. hang_pools.py MODE [PORT of a Redis]"""

import socket
import sys
import threading
import time

SIZE = 2
WAITERS = 4
LONG_S = 3600


def lent(lend):
    """`lend`, of whose pool nothing is free."""
    lent.kept = [lend() for _ in range(SIZE)]
    return lend


def sqlalchemy():
    from sqlalchemy import create_engine
    from sqlalchemy.pool import QueuePool
    engine = create_engine("sqlite://", poolclass=QueuePool, pool_size=SIZE, max_overflow=0, pool_timeout=LONG_S)
    return lent(engine.connect)


def psycopg():
    import psycopg_pool

    class Connection:
        """All that the pool asks of a connection."""
        closed = False

        @classmethod
        def connect(cls, *_, **__):
            return cls()

        def close(self):
            self.closed = True

    pool = psycopg_pool.ConnectionPool("", connection_class=Connection, min_size=SIZE, max_size=SIZE, timeout=LONG_S, open=True)
    return lent(pool.getconn)


def urllib3():
    import urllib3
    silent = socket.create_server(("127.0.0.1", 0))
    pool = urllib3.HTTPConnectionPool("127.0.0.1", silent.getsockname()[1], maxsize=SIZE, block=True, retries=False)

    def ask():
        pool.request("GET", "/")

    for _ in range(SIZE):
        threading.Thread(target=ask, daemon=True).start()
    urllib3.served = [silent.accept() for _ in range(SIZE)]  # and never answered
    return ask


def redis():
    import redis
    pool = redis.BlockingConnectionPool(port=int(sys.argv[2]), max_connections=SIZE, timeout=LONG_S)
    return lent(pool.get_connection)


def place_order(lend):
    lend()


def main():
    lend = {"sqlalchemy": sqlalchemy, "psycopg": psycopg, "urllib3": urllib3, "redis": redis}[sys.argv[1]]()
    for _ in range(WAITERS):
        threading.Thread(target=place_order, args=(lend,), daemon=True).start()
    print("ready", flush=True)
    time.sleep(LONG_S)


main()
