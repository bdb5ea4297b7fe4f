"""
Which key each call of a request has.

    Idempotency-Keys: "u1", "u2"    a structured-field list: member i is the key of call i
    Idempotency-Key: "u1"           one call, or calls of different procedures

With one key for a batch, a procedure that is called twice in it cannot be told from itself: a
client that regroups its calls for a retry would swap their answers. Such a batch is refused.
`indexed` is the seed's rule instead, which names the later calls of a batch by their place in it;
with `strict`, a batch whose calls could be regrouped is refused there too.

Source: facts about regrouped batches were measured with @trpc/client 11; RFC 8941, 3.1.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from semel.edges import idempotency_key
from semel.errors import BadKey

if TYPE_CHECKING:
    from collections.abc import Sequence

Rule = Literal["call", "indexed"]

LIST_NAME = "idempotency-keys"

#: A member of a list: up to a comma that is in no string.
_MEMBER = re.compile(r'((?:[^",]|"(?:[^"\\]|\\.)*")*)(,|$)')


@dataclass(frozen=True, slots=True)
class Key:
    """The key of one call: what the client said, and what follows the base id in the ledger."""

    said: str
    suffix: str


def of(
    lines: Sequence[tuple[str, str]], paths: Sequence[str], *, rule: Rule, strict: bool
) -> list[Key | None]:
    """
    The key of each call, or None for all where the request brings none.

    Args:
        lines: Header lines, names in lower case.
        paths: The procedures called, in the order of the calls.

    Raises:
        BadKey: what is there is no key, or cannot name every call.
    """
    listed = [value for name, value in lines if name == LIST_NAME]
    single = idempotency_key.find(lines, required=False)
    if listed:
        if single is not None:
            raise BadKey("Idempotency-Keys and Idempotency-Key are both there: send one")
        return _each(", ".join(listed), paths)
    if single is None:
        return [None] * len(paths)
    if rule == "indexed":
        if strict and len(paths) > 1:
            raise BadKey(
                f"one key for a batch of {len(paths)} calls, which a retry may regroup: send"
                " Idempotency-Keys with a key for each call"
            )
        return [
            Key(single, path if index == 0 else f"{path}:batch:{index}")
            for index, path in enumerate(paths)
        ]
    path, times = Counter(paths).most_common(1)[0]
    if times > 1:
        raise BadKey(
            f"one key for {times} calls of {path}: send Idempotency-Keys with a key for each"
            " call, as the client link does"
        )
    return [Key(single, path) for path in paths]


def _each(text: str, paths: Sequence[str]) -> list[Key | None]:
    members = _members(text)
    if len(members) != len(paths):
        raise BadKey(f"Idempotency-Keys has {len(members)} keys for {len(paths)} calls")
    name = idempotency_key.NAMES[0]
    found = [idempotency_key.find([(name, each)], required=True) or "" for each in members]
    ((_, path), times) = Counter(zip(found, paths, strict=True)).most_common(1)[0]
    if times > 1:
        raise BadKey(f"Idempotency-Keys has one key for {times} calls of {path}")
    return [Key(key, path) for key, path in zip(found, paths, strict=True)]


def _members(text: str) -> list[str]:
    members, at, comma = [], 0, ","
    while comma:
        found = _MEMBER.match(text, at)
        if found is None:
            raise BadKey("Idempotency-Keys is no list of structured-field strings")
        members.append(found[1])
        at, comma = found.end(), found[2]
    return members
