"""
Keys: whether a request is an operation, and under which key.

Only POST and PATCH are; with any other method the header means nothing. A blank key is not a
missing one: whoever sent it meant to be safe, so it is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from semel.edges import idempotency_key
from semel.edges.rest.refusal import MissingKey
from semel.edges.rest.rules import METHODS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from semel.edges.rest.rules import Rules


def find(rules: Rules, method: str, headers: Sequence[tuple[str, str]]) -> str | None:
    """
    The key of a request; None where it is none of ours.

    Args:
        headers: Pairs of lower-case name and value, repeated lines repeated.

    Raises:
        BadKey: it is no key, or is missing where it is required.
    """
    if method not in METHODS:
        return None
    key = idempotency_key.find(headers, required=False)
    if key is None and rules.require_key:
        raise MissingKey("this route requires an Idempotency-Key")
    return key
