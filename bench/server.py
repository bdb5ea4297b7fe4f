"""
Server: a throwaway PostgreSQL for one run of the benchmark, durable as a real one.

Each measurement gets a database of its own, copied from one that its contestant has set up.
"""

import os
import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from semel.db import embedded
from semel.db.pool import connect

if TYPE_CHECKING:
    import psycopg

SETTINGS = {
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "shared_buffers": os.environ.get("BENCH_SHARED_BUFFERS", "512MB"),
    "max_wal_size": "4GB",  # no checkpoint by size within a measurement
    "max_connections": "200",
    # Loaded for all alike, counting nothing until a database asks for it.
    "shared_preload_libraries": "pg_stat_statements",
    "pg_stat_statements.track": "none",
}
#: Read back and printed.
TOLD = (
    "fsync",
    "synchronous_commit",
    "full_page_writes",
    "shared_buffers",
    "max_wal_size",
    "wal_compression",
    "autovacuum",
    "io_method",
    "server_version",
)
DURABLE = ("fsync", "synchronous_commit", "full_page_writes")


class Server:
    """The running server."""

    def __init__(self, running: embedded.Server) -> None:
        self.running = running
        self.admin: psycopg.Connection[Any] = connect(running.dsn, name="bench")

    def url(self, database: str) -> str:
        """As every driver of every language reads it: a URL, over the socket."""
        folder = quote(str(self.running.socket_dir), safe="/")
        return f"postgresql://postgres@/{database}?host={folder}"

    def settings(self) -> dict[str, str]:
        """
        The settings in force, as the server tells them.

        Raises:
            SystemExit: commits are not durable, so nothing measured here would count.
        """
        told = {name: str(self.admin.execute(f"show {name}").fetchall()[0][0]) for name in TOLD}
        if any(told[name] != "on" for name in DURABLE):
            raise SystemExit(f"not durable: {told}")
        return told

    def exists(self, database: str) -> bool:
        asked = self.admin.execute("select from pg_database where datname = %s", (database,))
        return asked.rowcount > 0

    def make(self, database: str, *, of: str | None = None) -> None:
        self.drop(database)
        template = f" template {of}" if of else ""
        self.admin.execute(f"create database {database}{template}")

    def drop(self, database: str) -> None:
        self.admin.execute(f"drop database if exists {database} with (force)")

    def settle(self) -> None:
        """Begin with nothing left to write: each page's first change then costs its image."""
        self.admin.execute("checkpoint")

    def counters(self, database: str) -> dict[str, int]:
        """What the server has done so far; differences count."""
        [row] = self.admin.execute(
            "select pg_current_wal_insert_lsn() - '0/0',"
            " (select wal_records from pg_stat_wal), (select wal_fpi from pg_stat_wal),"
            " (select xact_commit from pg_stat_database where datname = %s),"
            " (select sum(writes) from pg_stat_io where object = 'relation'),"
            " (select sum(fsyncs) from pg_stat_io where object = 'wal')",
            (database,),
        ).fetchall()
        names = ("wal_bytes", "wal_records", "wal_images", "commits", "writes", "wal_syncs")
        counted = {name: int(value or 0) for name, value in zip(names, row, strict=True)}
        return {**counted, "server_cpu_us": self._cpu_us()}

    def _cpu_us(self) -> int:
        """What the postmaster and all its children have used, those included that have gone."""
        postmaster = self.running.postmaster_pid
        alive = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
        ticks = sum(_ticks(postmaster, reaped=True)) + sum(sum(_ticks(int(p))) for p in alive)
        return ticks * 1_000_000 // os.sysconf("SC_CLK_TCK")


def _ticks(pid: int, *, reaped: bool = False) -> list[int]:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):  # it ended meanwhile, and was reaped
        return []
    return [int(tick) for tick in stat[11 : 15 if reaped else 13]]


@contextmanager
def throwaway() -> Generator[Server]:
    """A server below the temporary folder, gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="semel-bench-"))
    folder.chmod(0o755)  # root's server runs as another account
    try:
        with embedded.use(folder / "home", settings=SETTINGS) as running:
            server = Server(running)
            yield server
            server.admin.close()
    finally:
        embedded.stop(folder / "home")
        shutil.rmtree(folder, ignore_errors=True)
