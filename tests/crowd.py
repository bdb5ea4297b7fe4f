"""Many threads at once, so that every call meets every other, and itself, in opposite orders."""

import random
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import psycopg

from fix_world import Conn
from modelling import NIGHTLY
from semel.db.pool import connect

ROUNDS = 5000 if NIGHTLY else 200
THREADS = 8


class Crowd:
    """Threads that call at the same moments, each on its own connection, in its own order."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self.errors: Counter[str] = Counter()
        self.answers: list[Any] = []
        self._lock = threading.Lock()

    def go(self, *works: Callable[[Conn, random.Random], Any], rounds: int = ROUNDS) -> None:
        gate = threading.Barrier(THREADS)

        def one_thread(n: int) -> None:
            chance = random.Random(n)
            with connect(self._dsn) as conn:
                conn.execute("set deadlock_timeout = '20ms'")
                for turn in range(rounds):
                    gate.wait(60)
                    # In pairs, so that each call meets itself too.
                    self._once(works[(n // 2 + turn) % len(works)], conn, chance)

        threads = [
            threading.Thread(target=one_thread, args=(n,), daemon=True) for n in range(THREADS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _once(
        self, work: Callable[[Conn, random.Random], Any], conn: Conn, chance: random.Random
    ) -> None:
        try:
            answer = work(conn, chance)
        except AssertionError as error:
            with self._lock:
                self.errors[str(error)] += 1
        except psycopg.Error as error:
            with self._lock:
                self.errors[f"{error.sqlstate} {error.diag.context or error}"[:400]] += 1
        else:
            with self._lock:
                self.answers.append(answer)
