"""
Readiness: whether this process is up, and whether it could accept an event now.

/healthz is about the process alone: a restart mends nothing that is wrong with the database.
/readyz connects, compares the schema, and is asked at most once a second however many ask.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
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
#: Whoever asks is told this soon that there is no answer yet.
LOOK_SECONDS_MAX = 2.0


class Readiness:
    """Judges the database at *dsn*."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._judged_at = float("-inf")
        self._error: SemelError | None = None
        self._looking: asyncio.Future[SemelError | None] | None = None

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
        if self._looking is None:
            if time.monotonic() - self._judged_at < CACHE_SECONDS:
                return self._error
            self._looking = self._begin()
        looking = self._looking
        await asyncio.wait({looking}, timeout=LOOK_SECONDS_MAX)
        if not looking.done():
            return DatabaseUnreachable(f"no answer within {LOOK_SECONDS_MAX:g} s")
        if self._looking is looking:
            self._looking = None
            self._error, self._judged_at = looking.result(), time.monotonic()
        return self._error

    def _begin(self) -> asyncio.Future[SemelError | None]:
        """Look in a thread that may hang as long as the database does; no exit waits for it."""
        loop = asyncio.get_running_loop()
        found: asyncio.Future[SemelError | None] = loop.create_future()

        def look() -> None:
            error = self._look()
            with contextlib.suppress(RuntimeError):  # the loop has ended, and nobody asks
                loop.call_soon_threadsafe(found.set_result, error)

        threading.Thread(target=look, name="semel-readiness", daemon=True).start()
        return found

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
