"""
Conclusion: what a handler's answer means to the operation that it was executed in.

Below 400 it is the operation's reply; from there on it is a business error, undone and not kept,
unless the rules say otherwise. A handler that replied through the operation has said it itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from semel.core.operations import Reply
from semel.edges.rest import answer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from semel.edges.operation import Operation
    from semel.edges.rest.rules import Rules


def conclude(
    rules: Rules,
    op: Operation,
    status: int,
    headers: Sequence[tuple[str, str]],
    body: bytes | None,
) -> None:
    """
    Let *op* end as the answer says.

    Args:
        body: None: it is longer than the rules allow, or cannot be read before it is sent.
    """
    if op.replied is not None:
        said = op.replied
        lines = answer.without_cookies(rules, said.headers)
        op.answer(said, kept=(Reply(status=said.status, headers=lines, body=said.body), False))
        return
    if op.failure is not None:
        return
    if rules.is_error(status):
        op.fail(f"the handler answered {status}", code=f"HTTP {status}")
        return
    reply, gone = answer.kept(rules, status, headers, body or b"")
    op.answer(
        Reply(status=status, headers=list(headers), body=body or b""),
        kept=(reply, gone or body is None),
    )
