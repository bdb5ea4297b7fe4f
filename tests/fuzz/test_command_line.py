"""Whatever is typed: an exit code, and for a refusal one line with a code; never a traceback."""

import json
from collections import Counter
from random import Random

import pytest

import fuzzing
from consistency import faults
from fix_cli import STRANGER, Said, Semel
from fix_world import Conn
from fuzzing import TIMEOUT, fuzz
from modelling import Tally

pytestmark = pytest.mark.timeout(TIMEOUT)

#: Those that end by themselves and touch nothing but the database.
COMMANDS = [
    ["run", "start", "@agent", "--input", "@json"],
    ["run", "start", "@agent", "--input", "@json", "--key", "@text"],
    [
        "run",
        "start",
        "@agent",
        "--priority",
        "@text",
        "--delay",
        "@text",
        "--deadline",
        "@text",
    ],
    ["run", "list", "--status", "@text", "--agent", "@text", "--limit", "@text"],
    ["run", "show", "@id"],
    ["run", "cancel", "@id", "--reason", "@text"],
    ["run", "retry", "@id"],
    ["event", "list", "--source", "@text", "--verdict", "@text", "--limit", "@text"],
    ["event", "show", "@id"],
    ["event", "explain", "--source", "@text", "--id", "@text"],
    ["event", "replay", "@id"],
    ["event", "import-legacy", "@text", "--source", "@text"],
    ["agent", "list"],
    ["agent", "pause", "@agent"],
    ["agent", "resume", "@agent"],
    ["token", "create", "--role", "@role", "--source", "@text", "--name", "@text"],
    ["token", "list"],
    ["token", "revoke", "@id"],
    ["upkeep", "--once", "--now", "@text"],
    ["migrate", "--check"],
    ["config"],
]
CODES = {0, 1, 2}
GOOD = {
    "@agent": ["a", "b"],
    "@role": ["admin", "viewer"],
    "@text": ["a", "api", "1", "30s", "PENDING", "new"],
}


def test_no_words_harm_us(here: Semel, conn: Conn, record_property: Tally) -> None:
    seen = [STRANGER]
    done = Counter[int]()

    def case(some: Random) -> None:
        words = typed(some, seen)
        said = here(*words)
        judge(words, said)
        done[said.code] += 1
        if said.code == 0 and words[:2] == ["run", "start"] and "--json" in words:
            seen.append(said.json["run_id"])

    record_property("cases", fuzz(case))
    assert set(done) == CODES, "some are carried out, some refused, some misuse"
    assert not faults(conn)


def typed(some: Random, seen: list[str]) -> list[str]:
    """A command with its words filled in, some of them badly."""
    words = [filled(some, word, seen) for word in some.choice(COMMANDS)]
    if some.random() < 0.2:
        words.insert(some.randrange(len(words)), fuzzing.text(some))
    if some.random() < 0.3:
        words += ["--project", some.choice(["default", "p", fuzzing.text(some)])]
    if some.random() < 0.5:
        words.append("--json")
    return [fuzzing.typed(word) for word in words]


def filled(some: Random, word: str, seen: list[str]) -> str:
    if word == "@json":
        return fuzzing.body(some, [{"a": [1, "x"]}, 1, None]).decode("utf-8", "surrogateescape")
    if word == "@id":
        return some.choice([*seen[-5:], seen[-1], fuzzing.text(some)])
    return some.choice([*GOOD[word], fuzzing.text(some)]) if word in GOOD else word


def judge(words: list[str], said: Said) -> None:
    assert said.code in CODES, (words, said)
    assert "Traceback" not in said.err, (words, said)
    assert "E-INTERNAL" not in said.err, (words, said)
    if said.code:
        assert said.err, (words, said)
        if "--json" in words:
            assert set(json.loads(said.err)) == {"code", "detail", "remedy"}, (words, said)
