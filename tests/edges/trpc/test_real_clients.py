"""The real @trpc/client 11 and 10 through every link, also when the first answer is lost after COMMIT."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from psycopg_pool import AsyncConnectionPool

from dropper import dropper
from fix_node import HERE, NodeClient, run_node
from fix_world import Conn
from rest_servers import asgi
from trpc_shop import TABLES, shop

pytestmark = pytest.mark.timeout(300)

VERSIONS = ("11", "10")
LINKS = ("single", "batch", "stream")
SCENE = [
    ["pay", {"id": "a", "cents": 1}],
    ["pay", {"id": "a", "cents": 1}],
    ["ship", {"id": "a"}],
    ["pay", {"id": "b", "cents": 2}],
    ["void"],
]
RECEIPTS: list[Any] = [
    {"ok": {"receipt": "a", "cents": 1}},
    {"ok": {"receipt": "a", "cents": 1}},
    {"ok": {"parcel": "a"}},
    {"ok": {"receipt": "b", "cents": 2}},
    {"ok": "<undefined>"},
]


@contextmanager
def serving(dsn: str, conn: Conn, **options: Any) -> Iterator[str]:
    """The shop behind uvicorn; its port."""
    conn.execute(TABLES)
    conn.execute("insert into failing values ('broke')")
    pools: list[Any] = []

    def pool() -> Any:
        if not pools:
            pools.append(AsyncConnectionPool(dsn, min_size=4, max_size=4, open=False))
        return pools[0]

    made = shop(pool, **options).asgi("/trpc")

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await receive()
            await pool().open()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await pool().close()
            await send({"type": "lifespan.shutdown.complete"})
        else:
            await made(scope, receive, send)

    with asgi(app, lifespan="on") as client:
        yield client.base


Play = Callable[..., Any]


@pytest.fixture
def play(dsn: str, conn: Conn, node: str, node_client: NodeClient) -> Play:
    """Plays a scene with the client of a version before a shop of its own; what each call got."""

    def played(version: str, *, lose: int = 0, **told: Any) -> Any:
        packages = node_client(version)
        options = {"transformer": told.get("transformer")}
        with (
            serving(dsn, conn, **options) as url,
            dropper(int(url.rpartition(":")[2])) as between,
        ):
            between.lose(lose)
            told["url"] = f"{between.url}/trpc"
            environ = {"SEMEL_SHOP": json.dumps(told), "SEMEL_TRPC": version}
            said = run_node(node, packages, str(HERE / "shop.mjs"), **environ)
            assert between.dropped == lose
        return json.loads(said)

    return played


def rows(conn: Conn, sql: str) -> Any:
    return conn.execute(sql).fetchall()


@pytest.mark.parametrize("transformer", [None, "superjson"], ids=["plain", "superjson"])
@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("version", VERSIONS)
def test_no_lost_answer_makes_a_second_execution_or_a_wrong_receipt(
    conn: Conn, play: Play, version: str, link: str, transformer: Any
) -> None:
    lose = 2 if link == "single" else 1
    said = play(
        version, lose=lose, link=link, transformer=transformer, scene=SCENE, retry="jitter"
    )
    assert said == RECEIPTS
    assert rows(conn, "select id, count(*) from paid group by 1 order by 1") == [
        ("a", 2),
        ("b", 1),
    ]
    assert rows(conn, "select id from shipped order by 1") == [("a",), ("void",)]
    assert rows(conn, "select distinct status, attempts from semel.operation") == [
        ("SUCCEEDED", 1)
    ]


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("version", VERSIONS)
def test_our_own_retry_link_does_as_well(
    conn: Conn, play: Play, version: str, link: str
) -> None:
    assert play(version, lose=1, link=link, scene=SCENE, retry="safe") == RECEIPTS
    assert rows(conn, "select count(*) from paid") == [(3,)]


@pytest.mark.parametrize("transformer", [None, "superjson"], ids=["plain", "superjson"])
@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("version", VERSIONS)
def test_an_error_reaches_the_client_as_its_own_server_would_send_it(
    play: Play, version: str, link: str, transformer: Any
) -> None:
    scene = [["pay", {"id": "broke", "cents": 2}], ["no.such"], ["ship", {"id": "a"}]]
    said = play(version, link=link, transformer=transformer, scene=scene, retry="safe")
    assert said[0]["data"] == {"code": "PRECONDITION_FAILED", "httpStatus": 412, "path": "pay"}
    assert said[1]["data"] == {"code": "NOT_FOUND", "httpStatus": 404, "path": "no.such"}
    assert said[2] == {"ok": {"parcel": "a"}}
