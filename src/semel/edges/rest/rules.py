"""
Rules: what a route, or a whole application, may say about its operations.

The defaults are the careful ones. An impossible rule is refused where it is written, not at the
first request.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypedDict

from semel.core import seals
from semel.core.operations import NAME_BYTES_MAX, WAIT
from semel.edges import identity
from semel.edges.rest import input as inputs
from semel.edges.rest.answer import KEPT, NEVER_KEPT
from semel.errors import BadConfig, OurFault

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import timedelta

    from semel.config import DigestKey
    from semel.core.seals import Seal, Store
    from semel.edges.identity import Anonymous
    from semel.edges.rest.asked import Asked

#: The methods that are operations; with any other the header means nothing.
METHODS = frozenset({"POST", "PATCH"})
BODY_BYTES_MAX = 10 << 20
ANSWER_BYTES_MAX = 1 << 20
_ERROR, _STATUS_MAX = 400, 599


class Options(TypedDict, total=False):
    """What an adapter takes beside the project; documented at `Rules`."""

    operation: str | None
    require_key: bool
    anonymous: Anonymous
    commit: Iterable[int]
    keep: Iterable[str]
    body_bytes_max: int
    answer_bytes_max: int
    wait: timedelta
    keys: Sequence[DigestKey]
    store: Store
    seal: Seal | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """
    How requests of one route are judged.

    Args:
        project: The ledger they are in.
        operation: The procedure's name in the ledger; None is the method and the path.
        require_key: Refuse a request without a key.
        anonymous: What a request with a key and no actor gets: 401, or one scope that all such
            requests share.
        commit: Statuses of 400 and more that are outcomes like any other: committed and replayed.
        keep: Headers to be kept with an answer beside `answer.KEPT`; Set-Cookie only if named.
        body_bytes_max: Of a request with a key; it is held in memory.
        answer_bytes_max: A longer answer is sent once, and a tombstone kept.
        wait: For another request's claim of the same key.
        keys: That digests are made with; the first one writes.
        store: "omit" keeps no answer, only that it was executed.
        seal: How kept answers are encrypted.

    Raises:
        BadConfig: a rule that cannot be kept.
    """

    project: str
    operation: str | None = None
    require_key: bool = False
    anonymous: Anonymous = "refused"
    commit: Iterable[int] = ()
    keep: Iterable[str] = ()
    body_bytes_max: int = BODY_BYTES_MAX
    answer_bytes_max: int = ANSWER_BYTES_MAX
    wait: timedelta = WAIT
    keys: Sequence[DigestKey] = ()
    store: Store = "plain"
    seal: Seal | None = None
    kept: frozenset[str] = field(init=False)
    outcomes: frozenset[int] = field(init=False)

    def __post_init__(self) -> None:
        more = frozenset(name.lower() for name in self.keep)
        if never := sorted(more & NEVER_KEPT):
            raise BadConfig(
                f"keep={never[0]!r}: it is the server's, and another with each answer"
            )
        object.__setattr__(self, "kept", KEPT | more)
        outcomes = frozenset(self.commit)
        for status in outcomes:
            if not _ERROR <= status <= _STATUS_MAX:
                raise BadConfig(
                    f"commit={status}: lower statuses commit anyway; name 400 to 599"
                )
        object.__setattr__(self, "outcomes", outcomes)
        if self.anonymous not in {"refused", "shared"}:
            raise BadConfig(f"anonymous={self.anonymous!r}: it is 'refused' or 'shared'")
        if self.operation is not None and not (
            0 < len(self.operation.encode()) <= NAME_BYTES_MAX and self.operation.isprintable()
        ):
            raise BadConfig(
                f"operation is a name of 1 to {NAME_BYTES_MAX} bytes, all of them printable"
            )
        try:
            seals.check(self.store, self.seal)
        except ValueError as bad:
            raise BadConfig(str(bad)) from None
        for limit in ("body_bytes_max", "answer_bytes_max"):
            if getattr(self, limit) < 0:
                raise BadConfig(f"{limit} is negative")

    def once(self, asked: Asked, actor: object, key: str | None) -> dict[str, Any]:
        """
        What `once` is told of a request, beside the connection.

        Raises:
            BadRequest: a body that is not what its Content-Type says.
        """
        return {
            **self._identity(asked, actor, key),
            "wait": self.wait,
            "result_max": self.answer_bytes_max,
            "store": self.store,
            "seal": self.seal,
        }

    def who(self, asked: Asked, actor: object, key: str) -> identity.Asked:
        """
        Who asks for what; otherwise as `once`.

        Raises:
            Unauthenticated: nobody, where that is refused.
        """
        found = identity.asked(**self._identity(asked, actor, key))
        if found is None:
            raise OurFault("a key and no identity")
        return found

    def _identity(self, asked: Asked, actor: object, key: str | None) -> dict[str, Any]:
        named = self.operation is not None
        return {
            "project": self.project,
            "key": key,
            "operation": inputs.procedure(self.operation, asked),
            "actor": actor,
            "anonymous": self.anonymous,
            "input": None if key is None else inputs.of(asked, self.keys, named=named),
        }

    def is_error(self, status: int) -> bool:
        """Whether *status* says that the work is not to be committed."""
        return status >= _ERROR and status not in self.outcomes
