"""Runs a statement COUNT times, PACE times a second, each in a transaction of its own, and then prints for each its number and when its
COMMIT was sent and when it had returned, in nanoseconds. %(n)s in the statement is the number. writer.py DSN STATEMENT COUNT PACE"""

import sys
import time

import psycopg

dsn, statement, count, pace = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
times = []
with psycopg.connect(dsn) as connection:
    began = time.monotonic()
    for n in range(1, count + 1):
        while (left := began + n / pace - time.monotonic()) > 0:
            time.sleep(left)
        connection.execute(statement, {"n": n}, prepare=True)
        before = time.time_ns()
        connection.commit()
        times.append((n, before, time.time_ns()))
for row in times:
    print(*row)
