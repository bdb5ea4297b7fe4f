"""
Readiness: whether this process is up, and whether it could accept an event now.

/healthz is about the process alone: a restart mends nothing that is wrong with the database.
/readyz connects, compares the schema, and is asked at most once a second however many ask.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from starlette.responses import JSONResponse, Response

from semel.db import migrate
from semel.db.execute import translated
from semel.db.pool import connect
from semel.edges import problem
from semel.errors import DatabaseUnreachable, SemelError

if TYPE_CHECKING:
    from starlette.requests import Request

CACHE_SECONDS = 1.0


class Readiness:
    """Judges the database at *dsn*."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._turn = asyncio.Lock()
        self._judged_at = float("-inf")
        self._error: SemelError | None = None

    async def healthz(self, _request: Request) -> Response:
        """200: the process answers."""
        return JSONResponse({"status": "ok"})

    async def readyz(self, _request: Request) -> Response:
        """200, or 503 with the code of what is in the way."""
        error = await self.judge()
        if error is not None:
            return problem.answer(error, status=503)
        return JSONResponse({"status": "ready", "schema_version": migrate.version()})

    async def judge(self) -> SemelError | None:
        """What is in the way; None if nothing is."""
        async with self._turn:
            if time.monotonic() - self._judged_at >= CACHE_SECONDS:
                self._error = await asyncio.to_thread(self._look)
                self._judged_at = time.monotonic()
            return self._error

    def _look(self) -> SemelError | None:
        try:
            with connect(self._dsn, name="semel-readiness", prepare=False) as conn:
                migrate.check(conn)
        except SemelError as error:
            return error
        except Exception as error:  # noqa: BLE001 - whatever it is, we are not ready
            ours = translated(error)
            said = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
            return ours if isinstance(ours, SemelError) else DatabaseUnreachable(said)
        return None
