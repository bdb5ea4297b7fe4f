"""
Forms of several parts, read as far as a digest needs: names, types and the digest of each content.

The boundary is another one in each attempt of most clients, so the bytes of a form are no
identity; its parts are. They are not decoded, and their order counts.

Source: RFC 7578; RFC 2046, 5.1.1.
"""

from __future__ import annotations

from email.message import Message
from typing import NamedTuple

from semel.core.form import PARTS_MAX, FormPart
from semel.errors import BadRequest

#: Of one part's header lines together.
HEAD_BYTES_MAX = 16 << 10


class Part(NamedTuple):
    """One field or file, with its content."""

    name: str
    content: bytes
    filename: str | None
    type: str | None  # as sent


def read(content_type: str, body: bytes) -> tuple[FormPart, ...]:
    """The parts of *body* as they are digested; raises as `parts`."""
    return tuple(
        FormPart.of(part.name, part.content, filename=part.filename, type=part.type)
        for part in parts(content_type, body)
    )


def parts(content_type: str, body: bytes) -> list[Part]:
    """
    The parts of *body*.

    Raises:
        BadRequest: no boundary, no end, a part without a name, or more than the limits allow.
    """
    boundary = parameter(content_type, "boundary")
    if not boundary or not boundary.isascii():
        raise BadRequest("multipart/form-data without a boundary")
    mark = b"\r\n--" + boundary.encode()
    pieces = (b"\r\n" + body).split(mark, PARTS_MAX + 2)
    if len(pieces) > PARTS_MAX + 2:
        raise BadRequest(f"the form has more than {PARTS_MAX} parts")
    if len(pieces) < 2 or not pieces[-1].startswith(b"--"):  # noqa: PLR2004 - a preamble, an end
        raise BadRequest("the form does not end with its boundary")
    return [_part(piece) for piece in pieces[1:-1]]


def parameter(header: str, name: str) -> str | None:
    """The parameter *name* of a header such as Content-Type."""
    message = Message()
    message["content-type"] = header
    found = message.get_param(name)
    if isinstance(found, tuple):  # RFC 2231: its charset, its language, and it
        found = found[2]
    return found if isinstance(found, str) else None


def _part(piece: bytes) -> Part:
    line, _, rest = piece.partition(b"\r\n")
    head, blank, content = (b"\r\n" + rest).partition(b"\r\n\r\n")
    if line.strip(b" \t") or not blank:
        raise BadRequest("a part of the form has no header lines")
    if len(head) > HEAD_BYTES_MAX:
        raise BadRequest(f"a part's header lines pass {HEAD_BYTES_MAX} bytes")
    lines: dict[str, str] = {}
    for raw in head.split(b"\r\n"):
        name, colon, value = raw.partition(b":")
        if colon:
            lines.setdefault(name.strip().lower().decode("latin-1"), _text(value.strip()))
    disposition = lines.get("content-disposition", "")
    name_ = parameter(disposition, "name")
    if name_ is None:
        raise BadRequest("a part of the form has no name")
    return Part(
        name_,
        content,
        filename=parameter(disposition, "filename"),
        type=lines.get("content-type"),
    )


def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("latin-1")
