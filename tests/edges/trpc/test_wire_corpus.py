"""Every request of the corpus is answered, to the byte, as the servers that it was captured from did."""

import asyncio
import base64
import json
from pathlib import Path
from typing import Any

import pytest

from trpc_asking import ask
from trpc_corpus import router

CORPUS = json.loads((Path(__file__).parents[2] / "corpus" / "trpc_wire.json").read_text())[
    "entries"
]

#: Of these the message is V8's own.
JSON_ERRORS = {"raw_malformed_json", "raw_nan_literal", "raw_get_query_bad_input"}
#: Fetch puts U+FFFD for bytes that are no UTF-8; two inputs would have one digest, so it is refused.
REFUSED = {"raw_invalid_utf8"}
#: Which call of a stream ends first is up to the machine.
RACES = {"v10_sj_stream_partial"}


def app_for(entry: dict[str, Any]) -> Any:
    options: dict[str, Any] = {}
    if entry["transformer"] != "none":
        options["transformer"] = "superjson"
    if entry["name"].startswith("batching_disabled"):
        options["batching"] = False
    if entry["name"] == "body_too_large":
        options["body_bytes_max"] = 1000
    version = 10 if entry["server"].startswith("@trpc/server 10") else 11
    return router(version, **options).asgi()


def body_of(message: dict[str, Any]) -> bytes:
    if "body_base64" in message:
        return base64.b64decode(message["body_base64"])
    before, cut, after = str(message["body"]).partition("…CUT…")
    # What was cut out is more of the same letter.
    missing = int(message["body_length"]) - len((before + after).encode())
    return (before + "x" * missing * bool(cut) + after).encode()


def without_message(body: bytes) -> Any:
    told = json.loads(body)
    assert told["error"].pop("message")
    return told


@pytest.mark.parametrize("entry", CORPUS, ids=lambda entry: entry["name"])
def test_a_captured_request_is_answered_as_it_was(entry: dict[str, Any]) -> None:
    app = app_for(entry)
    for each in entry["exchanges"]:
        request, expected = each["request"], each["response"]
        method, target, _ = request["start_line"].split(" ")
        # The servers of the capture knew nothing of keys; with them, test_ledger.py.
        headers = [line for line in request["headers"] if line[0] != "idempotency-key"]
        answer = asyncio.run(ask(app, method, target, body_of(request), headers))
        if entry["name"] in REFUSED:
            assert answer.status == 400
            assert answer.json["error"]["data"]["code"] == "BAD_REQUEST"
            continue
        assert answer.status == int(expected["start_line"].split(" ")[1])
        told = {name.lower(): value for name, value in expected["headers"]}
        for name in ("content-type", "vary", "allow"):
            assert answer.headers.get(name) == told.get(name)
        wanted = body_of(expected)
        if entry["name"] in JSON_ERRORS:
            assert without_message(answer.body) == without_message(wanted)
        elif entry["name"] in RACES:
            assert answer.json == json.loads(wanted)
        else:
            assert answer.body == wanted
            if "chunks" in expected:
                assert [chunk.decode() for chunk in answer.chunks] == expected["chunks"]


def test_the_corpus_has_all_its_entries() -> None:
    assert len(CORPUS) == 97
