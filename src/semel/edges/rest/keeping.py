"""Keeping: answers on their way into the ledger and out of it, where no `once` is in between."""

from __future__ import annotations

from typing import TYPE_CHECKING

from semel.core import seals
from semel.core.operations import Reply
from semel.edges.rest import answer
from semel.errors import ResultNotKept

if TYPE_CHECKING:
    from collections.abc import Sequence

    from semel.edges.rest.rules import Rules


def kept(
    rules: Rules, status: int, headers: Sequence[tuple[str, str]], body: bytes | None
) -> tuple[Reply, bool]:
    """
    What goes into the ledger of an answer, and whether that is a tombstone.

    Args:
        body: None: longer than the rules allow.

    Raises:
        Exception: whatever a seal raises.
    """
    reply, gone = answer.kept(rules, status, headers, body or b"")
    if gone or body is None:
        return Reply(status=status, headers=reply.headers, body=b""), True
    told = seals.kept(reply.headers, reply.body, store=rules.store, seal=rules.seal)
    return Reply(status=status, headers=told.headers, body=told.body), told.gone


def opened(rules: Rules, reply: Reply) -> Reply:
    """
    A kept answer as it was sent.

    Raises:
        ResultNotKept: it is sealed, and no seal here opens it.
    """
    try:
        headers, body = seals.opened(reply.headers, reply.body, seal=rules.seal)
    except seals.Unopened as shut:
        raise ResultNotKept(f"the operation was executed; {shut}") from shut
    return Reply(status=reply.status, headers=headers, body=body)
