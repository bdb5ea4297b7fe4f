"""
Input: what of a request must agree with its retry, and the name of its procedure.

    the procedure   the operation's name, or METHOD and path as the client wrote it
    JSON            RFC 8785: spaces, the order of members, 1 and 1.0 make no difference
    forms           each field and file by name, type and content; the boundary does not count
    any other       the bytes; no body is the digest of no bytes
    query           the text, where there is one
    the path        what the route takes out of it, where the operation has a name of its own

No header counts, and nothing else of the request. The input itself is not kept.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from semel.core.canonical import canonical
from semel.core.digest import Input
from semel.core.form import PARTS_MAX, FormPart, form_text
from semel.core.operations import NAME_BYTES_MAX
from semel.core.spelling import spelled
from semel.edges.rest import multipart
from semel.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Sequence

    from semel.config import DigestKey
    from semel.core.canonical import Version
    from semel.core.digest import Spell
    from semel.edges.rest.asked import Asked

#: No JSON begins with it: a body with a query is never taken for a body.
_MARK = b"request\n"
#: Of a path that is too long for a name: so much of it, and the digest of all.
_PATH_CHARS = 200


def procedure(name: str | None, asked: Asked) -> str:
    """What *asked* asks for, as the ledger calls it: *name*, or by default the method and path."""
    if name is not None:
        return name
    name = f"{asked.method} {asked.path}"
    if len(name.encode("utf-8", "replace")) <= NAME_BYTES_MAX and name.isprintable():
        return name
    whole = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
    shown = "".join(char if char.isascii() and char.isprintable() else "?" for char in name)
    return f"{shown[:_PATH_CHARS]}... sha256:{whole}"


def of(asked: Asked, keys: Sequence[DigestKey] = (), *, named: bool = False) -> Input:
    """
    The input of *asked*, ready to be digested.

    Args:
        keys: That digests are made with.
        named: Its procedure is a name, and not its path.

    Raises:
        BadRequest: a body that is not what its Content-Type says.
    """
    spell = _body(asked)
    params = dict(asked.params) if named else {}
    if asked.query or params:
        spell = _within(spell, {"path": params, "query": asked.query})
    found = Input(spell, 2, keys)
    found.envelopes()  # what has no digest is refused here, not while a transaction is open
    return found


def media_type(content_type: str | None) -> str:
    """The media type of a Content-Type header, in lower case and without parameters."""
    return (content_type or "").partition(";")[0].strip().lower()


def is_json(media: str) -> bool:
    """Whether *media* is JSON, or something that is written in it."""
    return media == "application/json" or (
        media.startswith("application/") and media.endswith("+json")
    )


def _body(asked: Asked) -> Spell:
    raw = asked.body
    content_type = asked.header("content-type") or ""
    media = media_type(content_type)
    if asked.parts is not None:
        return _form(asked.parts)
    if raw and is_json(media):
        return lambda version: spelled(raw, version, "strict")
    if raw and media == "multipart/form-data":
        return _form(multipart.read(content_type, raw))
    if raw and media == "application/x-www-form-urlencoded":
        return _form(_fields(raw))
    return lambda _version: raw


def _within(body: Spell, around: dict[str, Any]) -> Spell:
    def spell(version: Version) -> bytes:
        told = hashlib.sha256(body(version)).hexdigest()
        try:
            return _MARK + canonical({"body": told, **around})
        except ValueError as bad:
            raise BadInput(f"the path or the query has no digest: {bad}") from None

    return spell


def _form(parts: Sequence[FormPart]) -> Spell:
    text = form_text(parts)
    return lambda _version: text


def _fields(raw: bytes) -> list[FormPart]:
    text = raw.decode("latin-1")  # each byte a character, as it stands there or as %xx
    try:
        pairs = parse_qsl(
            text, keep_blank_values=True, encoding="latin-1", max_num_fields=PARTS_MAX
        )
    except ValueError:
        raise BadInput(f"the form has more than {PARTS_MAX} fields") from None
    return [FormPart.of(name, value.encode("latin-1")) for name, value in pairs]
