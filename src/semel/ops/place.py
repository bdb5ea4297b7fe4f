"""
Place: where the database of this process is, and whether it is fit to work with.

A DSN that was told wins; otherwise it is the embedded server in the home, held for as long as
this process needs it. Nothing is migrated here: a schema that does not fit is refused.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

from semel import errors, log
from semel.db import embedded, migrate
from semel.db.execute import translated, unreachable
from semel.db.pool import connect

if TYPE_CHECKING:
    from collections.abc import Generator

    from semel.config import Settings

#: How long a process that waits for its database rests between two looks.
LOOK_SECONDS_MAX = 2.0


@contextmanager
def database(settings: Settings, *, make: bool = False) -> Generator[str, None, None]:
    """
    The DSN in force; an embedded server stays at least until the block ends.

    With *make* an embedded server is started even where there has never been one.

    Raises:
        BadConfig: what was told is no connection string.
        DatabaseUnreachable: no DSN was told, and the home has no server.
        EmbeddedError: the embedded server cannot be started.
    """
    if settings.dsn is not None:
        try:
            conninfo_to_dict(settings.dsn)
        except psycopg.ProgrammingError:
            # Not quoted: a part of it may be a password.
            raise errors.BadConfig(
                "dsn is no connection string: write postgresql://user@host/name,"
                " or host=... dbname=..."
            ) from None
        yield settings.dsn
        return
    if not make and not _is_there(settings):
        raise errors.DatabaseUnreachable(
            f"SEMEL_DSN is not set and there is no database in {settings.home} yet:"
            " start one with `semel up` or `semel db start`"
        )
    server = embedded.use(settings.home)
    with embedded.guarded(server):
        yield server.dsn


@contextmanager
def connection(
    settings: Settings, *, name: str = "semel-cli"
) -> Generator[psycopg.Connection[Any], None, None]:
    """
    One connection to a database whose schema is ours.

    Raises:
        DatabaseUnreachable, EmbeddedError: there is no server, or it does not answer.
        SchemaMismatch: it answers, with another schema.
    """
    with database(settings) as dsn, opened(settings, dsn, name=name) as conn:
        migrate.check(conn)
        yield conn


@contextmanager
def opened(
    settings: Settings, dsn: str, *, name: str
) -> Generator[psycopg.Connection[Any], None, None]:
    """One connection, whatever the schema is."""
    try:
        conn = connect(dsn, name=name, prepare=not settings.pooler)
    except psycopg.Error as error:
        raise translated(error) from error
    with conn:
        yield conn


def await_schema(settings: Settings, dsn: str, *, wait: bool = True) -> None:
    """
    Return once the database answers with our schema; one that is merely down is waited for.

    Without *wait* it returns at once from one that is down, for a process that says so itself.

    Raises:
        SchemaMismatch: it answers, with another schema.
    """
    pause = 0.1
    while True:
        try:
            with opened(settings, dsn, name="semel-start") as conn:
                migrate.check(conn)
        except (psycopg.Error, errors.DatabaseUnreachable) as error:
            if not unreachable(error):
                raise
            log.event("database.lost", reason=str(error).strip().partition("\n")[0])
        else:
            log.event("database.reached", schema_version=migrate.version())
            return
        if not wait:
            return
        time.sleep(pause)
        pause = min(2 * pause, LOOK_SECONDS_MAX)


def _is_there(settings: Settings) -> bool:
    found = embedded.status(settings.home)
    return found.state != "stopped" or found.data.exists()
