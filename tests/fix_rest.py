"""Every front end of the ledger, on one database and behind real HTTP, started when first asked for."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack

import pytest
from psycopg.conninfo import conninfo_to_dict

from fix_database import database
from fix_world import Conn
from rest_servers import Client, asgi, wsgi
from rest_shop import TABLES, Gate, Shop
from semel.db import embedded
from semel.db.pool import connect

#: Those whose handler and ledger share a transaction.
ATOMIC = [
    "starlette-taken",
    "fastapi",
    "fastapi-sync",
    "fastapi-sqlalchemy",
    "django",
    "django-async",
    "flask",
    "flask-sqlalchemy",
]
#: Those whose handler commits by itself.
RECORDED = ["starlette", "django-middleware", "django-amiddleware"]
RULES = {"commit": (402,), "answer_bytes_max": 2000, "body_bytes_max": 4000}


class Fronts:
    """The servers of this process."""

    def __init__(self, dsn: str, stack: ExitStack) -> None:
        self.dsn = dsn
        self.shop = Shop()
        self._stack = stack
        self._running: dict[str, Client] = {}

    def client(self, name: str) -> Client:
        if name not in self._running:
            self._running[name] = self._stack.enter_context(self._start(name))
        return self._running[name]

    def _start(self, name: str) -> AbstractContextManager[Client]:
        framework, _, way = name.partition("-")
        if framework == "starlette":
            import rest_starlette

            take = way == "taken"
            return asgi(rest_starlette.application(self.dsn, self.shop, take=take, **RULES))
        if framework == "fastapi":
            import rest_fastapi

            url, driver = self._url("asyncpg"), way or "psycopg"
            return asgi(
                rest_fastapi.application(self.dsn, url, self.shop, driver=driver, **RULES)
            )
        if framework == "flask":
            import rest_flask

            url, driver = self._url("psycopg"), way or "psycopg"
            return wsgi(
                rest_flask.application(self.dsn, url, self.shop, driver=driver, **RULES)
            )
        import rest_django

        threads, loop = rest_django.applications(self.dsn, self.shop, **RULES)
        way = way or "plain"
        if way in {"plain", "middleware"}:
            return wsgi(threads, prefix=f"/{way}")
        return asgi(loop, lifespan="off", prefix=f"/{way}")

    def _url(self, driver: str) -> str:
        parts = conninfo_to_dict(self.dsn)
        return f"postgresql+{driver}://{parts['user']}@/{parts['dbname']}?host={parts['host']}"


@pytest.fixture(scope="session")
def fronts(server: embedded.Server, template: str) -> Iterator[Fronts]:
    with database(server, template) as dsn, ExitStack() as stack:
        with connect(dsn) as conn:
            conn.execute(TABLES)
        yield Fronts(dsn, stack)


@pytest.fixture
def shop(fronts: Fronts) -> Shop:
    fronts.shop.gate = Gate()
    return fronts.shop


@pytest.fixture
def ledger(fronts: Fronts) -> Iterator[Conn]:
    """A connection to their database, in which nothing has happened yet."""
    with connect(fronts.dsn) as conn:
        conn.execute(
            "truncate payment, note, strict, semel.operation, semel.operation_holder,"
            " semel.journal_pending restart identity"
        )
        yield conn


@pytest.fixture
def client(request: pytest.FixtureRequest, fronts: Fronts, shop: Shop, ledger: Conn) -> Client:
    return fronts.client(request.param)


everywhere = pytest.mark.parametrize("client", [*ATOMIC, *RECORDED], indirect=True)
where_atomic = pytest.mark.parametrize("client", ATOMIC, indirect=True)
where_recorded = pytest.mark.parametrize("client", RECORDED, indirect=True)
