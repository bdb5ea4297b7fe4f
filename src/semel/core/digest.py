"""
Digests: what is kept of an operation's input, and what a retry is compared by.

The ledger holds `{"version":V,"digest":"sha256:…"}`, never the input. Version 2 is the default;
version 1 is that of tRPC, and of rows from before. With keys configured a digest is an HMAC, so
that nobody who reads the table can guess a short input: the first key writes, all of them judge.
A row is judged under its own version and key, which `Input.under` looks up; nothing is judged here.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict

from semel.core.canonical import Version, canonical
from semel.core.ecmascript import UNDEFINED, stringified
from semel.core.form import form_text
from semel.core.spelling import Decode, spelled
from semel.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from semel.core.form import FormPart
    from semel.model import DigestKey

_DIGEST = re.compile(r"(?:sha256|hmac-sha256:(?P<kid>[^:]+)):[0-9a-f]{64}")
Spell: TypeAlias = "Callable[[Version], bytes]"


class Envelope(TypedDict):
    """A digest as the ledger keeps it."""

    version: int
    digest: str


def input_digest(
    raw: bytes | None,
    *,
    version: Version = 2,
    decode: Decode = "strict",
    key: DigestKey | None = None,
) -> str:
    """
    The digest of the JSON in *raw*: `sha256:<64 hex>`, or `hmac-sha256:<kid>:<64 hex>` of a key.

    Args:
        raw: As it came. None, and no bytes, are no input: version 1 takes it for null, version
            2 digests zero bytes.
        version: 2 is RFC 8785; 1 is the form of the ledger that tRPC rows come from.
        decode: `strict` is I-JSON, `js` is as JSON.parse reads.
        key: Makes it an HMAC.

    Raises:
        BadInput: no JSON, no UTF-8, out of range, or past a limit of `core.spelling`; strict:
            also a name twice, or an integer that a double cannot hold.
    """
    return _sealed(_raw(raw, version, decode), key)


def value_digest(value: Any, *, version: Version = 2, key: DigestKey | None = None) -> str:
    """
    The digest of a value that is decoded already; UNDEFINED is no input.

    Version 1 is of what JSON.stringify writes for it, see `core.ecmascript`; version 2 of JSON.

    Raises:
        BadInput: it has no such form.
    """
    return _sealed(_value(value, version), key)


def form_digest(parts: Iterable[FormPart], *, key: DigestKey | None = None) -> str:
    """
    The digest of a multipart form: name, file name, type and content of each part, as sent.

    Raises:
        BadInput: too many parts, or a name that is no Unicode.
    """
    return _sealed(form_text(parts), key)


def is_digest(told: object) -> bool:
    """Whether *told* is written as a digest is."""
    return isinstance(told, str) and _DIGEST.fullmatch(told) is not None


class Input:
    """One request's input, to be digested under the version and key that a row asks for."""

    def __init__(self, spell: Spell, version: Version, keys: Sequence[DigestKey] = ()) -> None:
        self._spell = spell
        self._version = version
        self._keys = keys
        self._texts: dict[Version, bytes] = {}

    @classmethod
    def of_raw(
        cls,
        raw: bytes | None,
        *,
        version: Version = 2,
        decode: Decode = "strict",
        keys: Sequence[DigestKey] = (),
    ) -> Input:
        """As `input_digest` takes it; BadInput is raised when a digest is asked for."""
        return cls(lambda asked: _raw(raw, asked, decode), version, keys)

    @classmethod
    def of_value(
        cls, value: Any, *, version: Version = 2, keys: Sequence[DigestKey] = ()
    ) -> Input:
        """As `value_digest` takes it."""
        return cls(lambda asked: _value(value, asked), version, keys)

    @classmethod
    def of_form(cls, parts: Iterable[FormPart], *, keys: Sequence[DigestKey] = ()) -> Input:
        """As `form_digest` takes it."""
        text = form_text(parts)
        return cls(lambda _asked: text, 2, keys)

    def envelopes(self) -> list[Envelope]:
        """
        What to begin with: the first is stored, any of them is the same input.

        Raises:
            BadInput: the input has no digest.
        """
        return [self._envelope(self._version, key) for key in self._keys or (None,)]

    def under(self, payload: Any) -> Envelope | None:
        """
        The envelope of this input under the version and key of a row's *payload*.

        None where there is none to compare: a payload of before versions, a version that this
        program does not know, or a key that is no longer configured.

        Raises:
            BadInput: the input has no digest under that version.
        """
        match payload:
            case {"version": 1 | 2 as version, "digest": str(digest)}:
                found = _DIGEST.fullmatch(digest)
            case _:
                return None
        if found is None or isinstance(version, bool):
            return None
        kid = found["kid"]
        if kid is None:
            return self._envelope(version, None)
        for key in self._keys:
            if key.kid == kid:
                return self._envelope(version, key)
        return None

    def _envelope(self, version: Version, key: DigestKey | None) -> Envelope:
        if version not in self._texts:
            self._texts[version] = self._spell(version)
        return {"version": version, "digest": _sealed(self._texts[version], key)}


def _raw(raw: bytes | None, version: Version, decode: Decode) -> bytes:
    return spelled(raw, version, decode) if raw else _nothing(version)


def _value(value: Any, version: Version) -> bytes:
    try:
        if version == 1:
            value = stringified(value)
        return _nothing(version) if value is UNDEFINED else canonical(value, version)
    except (TypeError, ValueError) as bad:
        raise BadInput(f"the input has no digest: {bad}") from None


def _nothing(version: Version) -> bytes:
    return b"null" if version == 1 else b""


def _sealed(text: bytes, key: DigestKey | None) -> str:
    if key is None:
        return f"sha256:{hashlib.sha256(text).hexdigest()}"
    return f"hmac-sha256:{key.kid}:{hmac.digest(key.secret, text, 'sha256').hex()}"
