"""
Digest: what `semel.input_digest` takes, beside json.loads and SHA-256 of the same bytes.

Three inputs: a data URL of 1 MB in an object, and objects of 10,000 members, numbers, texts, truths
and nulls, whose names come as they are counted, or in no order. Each version and each decoding,
turn by turn with what it is compared with; a figure is the median of the turns, in CPU time:
neither waits for anything, and on a busy machine the longer one is interrupted more often.
`python bench/digest.py` is this part alone, without a server.
"""

import base64
import functools
import hashlib
import json
import statistics
import time
from collections.abc import Callable
from random import Random
from typing import Any

from semel import input_digest

#: What the figures are divided by.
PLAIN = "json.loads, SHA-256"
URL = "digest, data URL of 1 MB"
MEMBERS = "digest, 10,000 members"
SHUFFLED = f"{MEMBERS} shuffled"
WAYS: list[tuple[Any, Any]] = [(1, "js"), (1, "strict"), (2, "js"), (2, "strict")]
TURNS = 15


@functools.cache
def inputs() -> dict[str, bytes]:
    """Name to bytes."""
    some = Random(1)
    url = f"data:image/png;base64,{base64.b64encode(some.randbytes(786_000)).decode()}"
    names = [f"member_{n}" for n in range(10_000)]
    members = {name: some.choice([n, f"value {n}", True, None]) for n, name in enumerate(names)}
    some.shuffle(names)
    told = {
        URL: {"name": "a.png", "dataUrl": url},
        MEMBERS: members,
        SHUFFLED: {name: members[name] for name in names},
    }
    return {what: json.dumps(value).encode() for what, value in told.items()}


def digest(what: str, version: Any, decode: Any, *, turns: int = TURNS) -> dict[str, float]:
    """Milliseconds of ours and of the plain way for the input called *what*."""
    raw = inputs()[what]
    ours, plain = [], []
    for _ in range(turns):
        plain.append(_timed(lambda: (json.loads(raw), hashlib.sha256(raw).hexdigest())))
        ours.append(_timed(lambda: input_digest(raw, version=version, decode=decode)))
    return {"ms": statistics.median(ours), "plain_ms": statistics.median(plain)}


def _timed(call: Callable[[], object]) -> float:
    began = time.thread_time()
    call()
    return (time.thread_time() - began) * 1000


def main() -> None:
    for what in inputs():
        for way in WAYS:
            told = digest(what, *way)
            ratio = told["ms"] / told["plain_ms"]
            print(f"{what:32} version {way[0]} {way[1]:6} {told['ms']:6.2f} ms {ratio:6.2f} x")


if __name__ == "__main__":
    main()
