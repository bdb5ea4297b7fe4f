"""A spool for tests: its settings, sources that use it, and a database that goes away and comes back."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from semel.config import Settings, Source, SpoolSettings
from semel.db.pool import connect
from web import settings as of

KEY = "0123456789abcdef" * 4
OTHER_KEY = "fedcba9876543210" * 4


def spool(folder: Path, *names: str, **changes: Any) -> SpoolSettings:
    """A spool in *folder* with the keys of *names*, files beside it; SPOOL if none is named."""
    keys = {"SPOOL": KEY, "OTHER": OTHER_KEY}
    references = []
    for name in names or ("SPOOL",):
        (folder.parent / f"{name}.key").write_text(keys[name])
        references.append(f"file:{folder.parent / name}.key")
    changes.setdefault("wait", timedelta(milliseconds=200))
    return SpoolSettings(path=str(folder), keys=tuple(references), **changes)


def spooled(dsn: str, kept: SpoolSettings, *sources: Source) -> Settings:
    return of(dsn, *sources, spool=kept)


@contextmanager
def away(dsn: str, spared: int = 0) -> Iterator[None]:
    """The database of *dsn* takes nobody in, and whoever was in is out, but for backend *spared*."""
    name = conninfo_to_dict(dsn)["dbname"]
    with connect(make_conninfo(dsn, dbname="postgres")) as admin:
        shut(admin, str(name), spared)
        try:
            yield
        finally:
            allow(admin, str(name), True)


def allow(admin: psycopg.Connection[Any], name: str, allowed: bool) -> None:
    admin.execute(
        sql.SQL("alter database {} allow_connections {}").format(
            sql.Identifier(name), sql.Literal(allowed)
        )
    )


def shut(admin: psycopg.Connection[Any], name: str, spared: int = 0) -> None:
    allow(admin, name, False)
    alone = 0  # times that nobody was seen: who was on his way in is only seen when he is there
    while alone < 5:
        ended = admin.execute(
            "select pg_terminate_backend(pid, 5000) from pg_stat_activity where datname = %s and pid <> %s",
            (name, spared),
        ).fetchall()
        alone = 0 if ended else alone + 1
