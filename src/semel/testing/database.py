"""
Database: a PostgreSQL of the tests' own, and a fresh migrated database in it for each test.

A database is cloned from a migrated one in some 30 ms. What is written is not made durable: a test
that loses its machine has lost nothing.
"""

from __future__ import annotations

import fcntl
import itertools
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from psycopg import sql
from psycopg.conninfo import make_conninfo

from semel.db import embedded, migrate
from semel.db.pool import connect

if TYPE_CHECKING:
    from collections.abc import Generator
    from contextlib import AbstractContextManager
    from pathlib import Path

FAST = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "max_connections": "300",
}
TEMPLATE = "semel_template"
_count = itertools.count()


def server(home: Path) -> AbstractContextManager[embedded.Server]:
    """The server of *home*, shared by all who use it, ended by the last."""
    return embedded.use(home, settings=FAST)


@contextmanager
def fresh(running: embedded.Server) -> Generator[str, None, None]:
    """The conninfo of a migrated database that is there for this block."""
    _template(running)
    name = f"semel_test_{os.getpid()}_{next(_count)}"
    with connect(running.dsn) as admin:
        admin.execute(
            sql.SQL("create database {} template {} strategy wal_log").format(
                sql.Identifier(name), sql.Identifier(TEMPLATE)
            )
        )
        try:
            yield make_conninfo(running.dsn, dbname=name)
        finally:
            admin.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))


def _template(running: embedded.Server) -> None:
    """Make the database that others are cloned from, unless it is there."""
    with (
        running.home.with_name("template.lock").open("w") as lock,
        connect(running.dsn) as admin,
    ):
        fcntl.flock(lock, fcntl.LOCK_EX)  # of several test processes, one makes it
        found = admin.execute("select from pg_database where datname = %s", (TEMPLATE,))
        if found.fetchone() is None:
            admin.execute("create database semel_template_new")
            with connect(make_conninfo(running.dsn, dbname="semel_template_new")) as new:
                migrate.migrate(new)
            admin.execute("alter database semel_template_new rename to semel_template")
