"""
Identity: who asks for what, out of what a program says to `once`.

Everything is looked at here, before a connection is: a bad key or input costs no transaction.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, get_args

from semel.config.settings import PROJECT
from semel.core.canonical import Version
from semel.core.digest import Input, is_digest
from semel.core.operations import NAME_BYTES_MAX, REQUEST_BYTES_MAX, Identity, base_id
from semel.core.spelling import Decode
from semel.errors import BadKey, BadRequest, Unauthenticated

if TYPE_CHECKING:
    from collections.abc import Sequence

    from semel.config import DigestKey

#: How an operation takes a request that names no actor.
Anonymous = Literal["refused", "shared"]
_WORDS = {
    "version": get_args(Version),
    "decode": get_args(Decode),
    "anonymous": get_args(Anonymous),
}
KEY_CHARS_MAX = 255


class Asked:
    """
    An identity, and the means to compare it with a row of another version.

    Args:
        input: None where nothing but the digest is known.
    """

    def __init__(self, identity: Identity, input: Input | None) -> None:  # noqa: A002
        self.identity = identity
        self._input = input

    def under(self, payload: Any) -> Asked | None:
        """The same with a digest such as a row's *payload* has; None where there is none."""
        envelope = None if self._input is None else self._input.under(payload)
        if envelope is None:
            return None
        more: Any = [*self.identity.envelopes, envelope]
        return Asked(replace(self.identity, envelopes=more), self._input)


def asked(
    *,
    project: str,
    key: str | None,
    operation: str,
    actor: object,
    input: Any,  # noqa: A002 - the contract's word
    digest: str | None = None,
    version: Version = 2,
    decode: Decode = "strict",
    keys: Sequence[DigestKey] = (),
    anonymous: Anonymous = "refused",
    required: bool = False,
    request_id: str | None = None,
) -> Asked | None:
    """
    Who asks for what; None without a key, where none is required.

    Raises:
        BadKey: no key where one is required, or what is none.
        Unauthenticated: a key and no actor, unless *anonymous* is "shared".
        BadInput: the input has no digest.
        BadRequest: the project, operation or actor is none.
    """
    if not _fits(project, NAME_BYTES_MAX) or not PROJECT.fullmatch(project):
        raise BadRequest(f"{project!r:.80} is no project: 1 to 64 of a-z, 0-9, _ and -")
    if key is None:
        if required:
            raise BadKey("this operation requires an idempotency key")
        return None
    _check_key(key)
    if actor is None and anonymous != "shared":
        raise Unauthenticated(
            'a key counts for somebody: pass actor=, or anonymous="shared" where all may share one'
        )
    who = None if actor is None else str(actor)
    _check_texts(operation=operation, actor=who, request_id=request_id)
    _check_words(version=version, decode=decode, anonymous=anonymous)
    if digest is not None:
        if input is not None:
            raise BadRequest("pass the input or its digest, not both")
        if not is_digest(digest):
            raise BadRequest(
                f"{digest!r:.80} is no digest: semel.input_digest makes `sha256:` and 64 hex digits"
            )
        given = None
        envelopes: list[Any] = [{"version": version, "digest": digest}]
    else:
        given = _input(input, version, decode, keys)
        envelopes = list[Any](given.envelopes())
    identity = Identity(
        project=project,
        request_id=request_id or base_id(project, who, key),
        event_type=operation,
        actor=who,
        envelopes=envelopes,
    )
    return Asked(identity, given)


def _check_key(key: Any) -> None:
    if not isinstance(key, str):
        raise BadKey(f"a key is text, not {type(key).__name__}: pass str(key)")
    if not (0 < len(key.strip()) <= KEY_CHARS_MAX and key.isascii() and key.isprintable()):
        raise BadKey(f"a key is 1 to {KEY_CHARS_MAX} printable ASCII characters")


def _check_texts(**texts: Any) -> None:
    for name, text in texts.items():
        most = REQUEST_BYTES_MAX if name == "request_id" else NAME_BYTES_MAX
        if text is not None and not _fits(text, most):
            raise BadRequest(f"{name} is a text of 1 to {most} bytes, not {text!r:.80}")


def _check_words(**told: object) -> None:
    for name, word in told.items():
        words = _WORDS[name]
        if word not in words:
            raise BadRequest(f"{name} is one of {', '.join(map(str, words))}, not {word!r:.80}")


def _input(told: Any, version: Version, decode: Decode, keys: Sequence[DigestKey]) -> Input:
    if isinstance(told, Input):
        return told
    if told is None or isinstance(told, bytes):
        return Input.of_raw(told, version=version, decode=decode, keys=keys)
    return Input.of_value(told, version=version, keys=keys)


def _fits(text: Any, most: int) -> bool:
    if not isinstance(text, str):
        return False
    try:
        return 0 < len(text.encode()) <= most and "\0" not in text
    except UnicodeEncodeError:
        return False
