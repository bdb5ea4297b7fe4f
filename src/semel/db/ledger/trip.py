"""
Trip: statements that psycopg's connection sends together, and their results.

Simple is one query of several statements, piped the extended protocol with one Sync behind them
all. Either way the first that fails has the rest skipped. psycopg's own pipeline mode is not in
it: whatever happens, libpq is out of its pipeline mode afterwards, or the connection is closed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import psycopg
from psycopg import generators
from psycopg.pq import ConnStatus, ExecStatus, PipelineStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from psycopg.abc import PQGen
    from psycopg.pq.abc import PGconn, PGresult

#: The name that a statement is prepared under, its arguments and their formats.
Step: TypeAlias = "tuple[bytes, list[bytes | None], list[int]]"


def simple(pgconn: PGconn, sql: bytes) -> PQGen[list[PGresult]]:
    """Execute the statements in *sql*."""
    pgconn.send_query(sql)
    results: list[PGresult] = yield from generators.execute(pgconn)
    return results


def piped(
    pgconn: PGconn, prepare: Sequence[tuple[bytes, bytes]], steps: Sequence[Step]
) -> PQGen[list[PGresult]]:
    """
    Prepare each (name, text), execute *steps*; one result for each of both.

    Raises:
        OperationalError: the connection was lost.
    """
    results: list[PGresult] = []
    try:
        pgconn.enter_pipeline_mode()
        for name, text in prepare:
            pgconn.send_prepare(name, text)
        for name, values, formats in steps:
            pgconn.send_query_prepared(name, values, formats)
        pgconn.pipeline_sync()
        yield from generators.send(pgconn)
        while got := (yield from generators.fetch_many(pgconn)):
            if got[0].status == ExecStatus.PIPELINE_SYNC:
                return results
            results += got
    finally:
        _leave(pgconn)
    if any(result.status == ExecStatus.FATAL_ERROR for result in results):
        return results  # the server's last words
    raise psycopg.OperationalError("the connection was lost")


def _leave(pgconn: PGconn) -> None:
    if pgconn.status != ConnStatus.OK or pgconn.pipeline_status == PipelineStatus.OFF:
        return
    try:
        pgconn.exit_pipeline_mode()
    except psycopg.Error:
        pgconn.finish()  # something is still to come, which nobody will ask for
