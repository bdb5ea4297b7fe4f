"""
Seals: what is kept of a reply, for operations whose results may not lie readable in the ledger.

    plain    status, headers and body as they were answered; the default
    omit     nothing: a tombstone. The retry is told that it was executed (E-IDEMPOTENT-005)
    sealed   headers and body as one sealed text; the status stays readable

Whoever declares the operation decides, and brings the cipher and its key. Nothing here knows a
cipher, and a seal that does not open never leads to a second execution.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Store = Literal["plain", "omit"]
STORES = get_args(Store)
Headers = list[tuple[str, str]]

#: The one header that a sealed reply shows in the ledger. No client ever sees it.
MARK: tuple[str, str] = ("semel-sealed", "1")


@dataclass(frozen=True, slots=True)
class Seal:
    """
    How the replies of an operation are sealed.

    Args:
        close: From readable to sealed bytes. Authenticated encryption, such as Fernet's
            `encrypt`: who can write to the ledger must not be able to make a reply.
        open: Back again. It raises whatever it likes on a key that is not its own.
    """

    close: Callable[[bytes], bytes]
    open: Callable[[bytes], bytes]


class Unopened(Exception):
    """A sealed reply that no seal here opens; the operation was executed all the same."""


@dataclass(frozen=True, slots=True)
class Kept:
    """What goes into the ledger of one reply."""

    headers: Headers
    body: bytes
    gone: bool  # a tombstone: executed, and nothing of the reply is kept


def check(store: Store, seal: Seal | None) -> None:
    """
    Whether they can be meant, before anything is executed.

    Raises:
        ValueError: *store* is no word of Store, or "omit" beside a *seal*.
    """
    if store not in STORES:
        raise ValueError(f"store={store!r:.40}: it is {' or '.join(map(repr, STORES))}")
    if store == "omit" and seal is not None:
        raise ValueError('store="omit" keeps nothing that could be sealed: leave one out')


def kept(
    headers: Sequence[tuple[str, str]],
    body: bytes,
    *,
    store: Store = "plain",
    seal: Seal | None = None,
) -> Kept:
    """
    What to keep of a reply.

    Raises:
        ValueError: as `check`.
        Exception: whatever the seal raises. Nothing is committed then.
    """
    check(store, seal)
    if store == "omit":
        return Kept(headers=[], body=b"", gone=True)
    if seal is None:
        return Kept(headers=list(headers), body=body, gone=False)
    readable = json.dumps([list(headers), base64.b64encode(body).decode()]).encode()
    return Kept(headers=[MARK], body=seal.close(readable), gone=False)


def opened(
    headers: Sequence[tuple[str, str]], body: bytes, *, seal: Seal | None = None
) -> tuple[Headers, bytes]:
    """
    Headers and body of a reply that was kept: the inverse of `kept`, for a replay.

    A reply that was kept before the operation had a seal is readable as it is.

    Raises:
        Unopened: it is sealed and there is no seal, or its key or content is another.
    """
    if [tuple(each) for each in headers] != [MARK]:
        return list(headers), body
    if seal is None:
        raise Unopened("the result is sealed, and the operation has no seal")
    try:
        told: Any = json.loads(seal.open(body))
        return [(name, value) for name, value in told[0]], base64.b64decode(told[1])
    except Exception as error:
        raise Unopened(f"the seal did not open: {type(error).__name__}") from error
