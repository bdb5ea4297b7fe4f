"""once where psycopg may prepare, behind a PgBouncer that hands sessions around all the same."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

import semel
from fix_bouncer import BINARY
from fix_world import Conn, one

KEYS = 12
CLIENTS = 4

pytestmark = pytest.mark.skipif(
    BINARY is None,
    reason="no pgbouncer: apt-get install pgbouncer, or brew install pgbouncer",
)


def test_a_statement_that_another_session_has_prepared_fails_nothing(
    conn: Conn, bouncer: str
) -> None:
    """Clients meet sessions without their statements, and with somebody else's of the same name."""
    conn.execute("create table public.paid (key text, client int)")

    def run(client: int) -> None:
        for n in range(KEYS):
            # Whose session has it is another one each time: a new client every few operations.
            with psycopg.connect(bouncer, autocommit=True) as mine:
                for key in (f"{n}", f"{client}-{n}", f"{client}-{n}-again"):
                    told: dict[str, Any] = {"project": "p", "actor": "ann", "key": key}
                    with semel.once(mine, **told, operation="pay") as op:
                        if op.replay is None:
                            mine.execute(
                                "insert into public.paid values (%s, %s)",
                                (key, client),
                                prepare=False,
                            )
                            op.reply({"client": client})

    with ThreadPoolExecutor(CLIENTS) as threads:
        list(threads.map(run, range(CLIENTS)))
    keys = KEYS + 2 * KEYS * CLIENTS
    assert keys == one(conn, "select count(*) from public.paid")
    assert [("SUCCEEDED", keys)] == conn.execute(
        "select status, count(*) from semel.operation group by 1"
    ).fetchall()
