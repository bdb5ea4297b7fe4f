"""
What the ledger keeps of a mutation's result, and the result again.

The body is the JSON of the procedure's output, so that whoever reads the ledger can read it; what
a transformer says beside it is a header. Both are sent again to the byte. A row of another system
has a body alone, which is plain JSON.
"""

from __future__ import annotations

import json

from semel.core.operations import Reply
from semel.edges.trpc.answers import Done, Streamed
from semel.edges.trpc.javascript import stringify
from semel.edges.trpc.transformer import Dumped

#: Annotations of the transformer, as JSON; no client sees it.
META = "semel-trpc-meta"
#: "undefined", or "stream" where the body is [items, returned].
KIND = "semel-trpc-kind"

_TYPE = ("content-type", "application/json")


def reply(result: Done | Streamed) -> Reply:
    """*result* as the ledger keeps it."""
    headers = [_TYPE]
    if isinstance(result, Done):
        dumped = result.data
        if dumped.json is None:
            headers.append((KIND, "undefined"))
        if dumped.meta is not None:
            headers.append((META, stringify(dumped.meta)))
        return Reply(status=200, headers=headers, body=(dumped.json or "null").encode())
    every = [*result.items, result.end]
    headers.append((KIND, "stream"))
    headers.append((META, stringify([one.meta for one in every])))
    end = [] if result.end.json is None else [result.end.json]
    items = ",".join(item.json or "null" for item in result.items)
    return Reply(status=200, headers=headers, body=f"[[{items}],[{','.join(end)}]]".encode())


def result(kept: Reply, *, replayed: bool) -> Done | Streamed:
    """The result that *kept* is of."""
    told = {name.lower(): value for name, value in kept.headers}
    meta = json.loads(told.get(META, "null"))
    text = kept.body.decode()
    if told.get(KIND) != "stream":
        gone = told.get(KIND) == "undefined" or not text
        return Done(Dumped(None if gone else text, meta), replayed)
    items, end = json.loads(text)
    dumped = [Dumped(stringify(item), each) for item, each in zip(items, meta, strict=False)]
    last = Dumped(stringify(end[0]) if end else None, meta[-1])
    return Streamed(dumped, last, replayed)
