"""Spool: folder, door and drain of one ingress, opened and closed together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from semel.edges.acceptor import Acceptor
from semel.edges.spool.door import Door
from semel.edges.spool.drain import Drain
from semel.edges.spool.folder import Folder

if TYPE_CHECKING:
    from typing import Any

    import psycopg
    from psycopg_pool import AsyncConnectionPool

    from semel.config import Settings


class Spool:
    """
    The spool of *settings*, drained through *pool*.

    Raises:
        BadConfig: its folder is another process's or cannot be used, or a key is missing.
    """

    def __init__(
        self, settings: Settings, pool: AsyncConnectionPool[psycopg.AsyncConnection[Any]]
    ) -> None:
        sources: dict[str, list[str]] = {}
        for source in settings.sources.values():
            if source.spool:
                sources.setdefault(source.project, []).append(source.name)
        self.folder = Folder(settings.spool)
        wait = settings.spool.wait.total_seconds()
        acceptor = Acceptor(pool, memory=settings.retention.dedupe, wait=wait)
        self.door = Door(self.folder, acceptor, wait=wait)
        self.drain = Drain(
            self.folder,
            settings.dsn or "",
            pool,
            prepare=not settings.pooler,
            memory=settings.retention.dedupe,
            sources=sources,
        )

    @classmethod
    def of(
        cls, settings: Settings, pool: AsyncConnectionPool[psycopg.AsyncConnection[Any]]
    ) -> Spool | None:
        """The one that *settings* ask for; None: none."""
        return cls(settings, pool) if settings.spool.is_there else None

    def start(self) -> None:
        """Begin to drain."""
        self.drain.start()

    async def close(self) -> None:
        """Stop to drain, end what is being written, and let the folder go."""
        await self.drain.stop()
        await self.folder.close()
