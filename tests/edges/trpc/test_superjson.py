"""superjson as its own library reads and writes it, and a replay that carries what it carried."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from fix_node import HERE, NodeClient, run_node
from fix_world import Conn
from semel.edges.trpc import stored
from semel.edges.trpc.answers import Done, Streamed
from semel.edges.trpc.superjson import SuperJSON
from semel.edges.trpc.values import UNDEFINED, BigInt, Map, Set, Url
from semel.trpc import Context, Router
from trpc_shop import open_shop

AT = datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)
VALUES: list[Any] = [
    None, True, 1, -1.5, "text", [], {}, [1, [2, {"a": None}]],
    AT, {"at": AT}, {"a.b": {"c\\d": [AT, BigInt(5)]}}, [{"x": AT}, AT],
    BigInt(2**70), -(2**60), float("inf"), float("-inf"), -0.0,
    Set([1, AT, "a"]), Map([["k", 1], [AT, Set([AT])]]), {"m": Map([[1, {"deep": AT}]])},
    Url("https://x.test/a?b=1"), b"\x00\xff", {"u": UNDEFINED, "n": None}, UNDEFINED, [UNDEFINED],
    {"0": {"1": AT}, "a": {"b": {"c": AT, "d": 1}}}, "\ud800", {"": AT},
]  # fmt: skip


def test_the_library_reads_what_we_write_and_writes_it_the_same(
    node: str, node_client: NodeClient, tmp_path: Path
) -> None:
    texts = [SuperJSON().data(SuperJSON().dump(value)) for value in VALUES]
    program = tmp_path / "same.mjs"
    program.write_text(
        f"import {{ load }} from {json.dumps(str(HERE / 'packages.mjs'))};\n"
        "const superjson = load('superjson').default ?? load('superjson');\n"
        f"const texts = {json.dumps(texts)};\n"
        "console.log(JSON.stringify(texts.map((text) => superjson.stringify(superjson.deserialize(JSON.parse(text))))));\n"
    )
    said = json.loads(run_node(node, node_client("11"), str(program)))
    for text, again in zip(texts, said, strict=True):
        assert text is not None
        assert json.loads(again) == json.loads(text)


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_what_is_written_is_read_again(value: Any) -> None:
    wire = json.loads(SuperJSON().data(SuperJSON().dump(value)) or "")
    loaded = SuperJSON().load(wire).value
    again = SuperJSON().dump(loaded)
    if value in ([UNDEFINED], {"u": UNDEFINED, "n": None}):
        return  # a handler sees null in a list, and nothing in an object
    assert again == SuperJSON().dump(value)


BAD: list[Any] = [
    1, {}, {"json": 1, "meta": 2}, {"json": "x", "meta": {"values": ["Date"]}},
    {"json": 1, "meta": {"values": ["Date"]}}, {"json": "1x", "meta": {"values": ["bigint"]}},
    {"json": {}, "meta": {"values": {"a": ["Date"]}}}, {"json": [], "meta": {"values": {"x": ["Date"]}}},
    {"json": "1e5", "meta": {"values": ["number"]}}, {"json": [1], "meta": {"values": ["map"]}},
    {"json": "/a/", "meta": {"values": ["regexp"]}}, {"json": {}, "meta": {"values": [["class", "X"]]}},
    {"json": [[1]], "meta": {"values": 5}}, {"json": 1, "meta": {"values": [[]]}},
    {"json": {"a": {}, "b": None}, "meta": {"referentialEqualities": {"a": ["b"]}}},
    {"json": "9" * 2000, "meta": {"values": ["bigint"]}},
    {"json": [256], "meta": {"values": [["typed-array", "Uint8Array"]]}},
]  # fmt: skip


@pytest.mark.parametrize("wire", BAD, ids=repr)
def test_what_superjson_cannot_read_is_a_value_error(wire: Any) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - each has its own words
        SuperJSON().load(wire)


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_what_is_stored_is_sent_again_to_the_byte(value: Any) -> None:
    dumped = SuperJSON().dump(value)
    done = Done(dumped)
    again = stored.result(stored.reply(done), replayed=False)
    assert isinstance(again, Done)
    assert SuperJSON().data(again.data) == SuperJSON().data(dumped)
    both = Streamed([dumped, dumped], dumped)
    assert stored.result(stored.reply(both), replayed=False) == both or value is UNDEFINED


def rich(pool: Any, **options: Any) -> Router:
    router = Router(pool, project="shop", context=lambda request: {"actor": "alice"}, **options)

    @router.mutation("shift")
    async def shift(ctx: Context, given: Any) -> Any:
        return {"at": AT, "given": given}

    return router


def test_a_replay_through_superjson_carries_its_types(dsn: str, conn: Conn) -> None:
    with open_shop(dsn, conn, rich, transformer="superjson") as here:
        first = here.ask("shift", {"json": {"n": 1}}, key="k")
        again = here.ask("shift", {"json": {"n": 1}}, key="k")
        assert again.json["result"].pop("replayed") is True
        assert again.json["result"]["data"] == first.json["result"]["data"]
        assert first.json["result"]["data"]["meta"] == {"values": {"at": ["Date"]}, "v": 1}
        row = here.row("k", "shift")
        assert row[2] == {"at": "2026-01-02T03:04:05.678Z", "given": {"n": 1}}


def test_a_date_is_its_text_to_the_digest_as_in_rows_of_before_and_sets_are_told_apart(
    dsn: str, conn: Conn
) -> None:
    text = {"json": {"at": "2026-01-02T03:04:05.678Z"}}
    date = {**text, "meta": {"values": {"at": ["Date"]}, "v": 1}}
    a_set = {"json": {"s": [1]}, "meta": {"values": {"s": ["set"]}, "v": 1}}
    other = {"json": {"s": [2]}, "meta": {"values": {"s": ["set"]}, "v": 1}}
    with open_shop(dsn, conn, rich, transformer="superjson") as here:
        assert here.ask("shift", text, key="a").status == 200
        assert here.ask("shift", date, key="a").headers["idempotent-replayed"] == "true"
        assert here.ask("shift", a_set, key="b").status == 200
        assert here.ask("shift", other, key="b").status == 409
        del a_set["meta"]["v"]  # type: ignore[attr-defined]
        assert here.ask("shift", a_set, key="b").headers["idempotent-replayed"] == "true"
        versions = conn.execute(
            "select payload -> 'version' from semel.operations order by 1"
        ).fetchall()
        assert versions == [(1,), (2,)]
