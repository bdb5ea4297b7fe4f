"""
Forms: bodies of application/x-www-form-urlencoded, as a few providers still send them.

A field that comes twice is refused: who verifies one and reads the other has verified nothing.

Source: the URL Standard, application/x-www-form-urlencoded parsing.
"""

from __future__ import annotations

from urllib.parse import unquote_to_bytes

from semel.errors import BadRequest

MEDIA = "application/x-www-form-urlencoded"
#: Fields of one form.
FIELDS_MAX = 200


def fields(raw: bytes) -> dict[bytes, bytes]:
    """
    The fields in *raw*, each once.

    Raises:
        BadRequest: a field comes twice, or there are too many.
    """
    found: dict[bytes, bytes] = {}
    if raw.count(b"&") >= FIELDS_MAX:
        raise BadRequest(f"the form has more than {FIELDS_MAX} fields")
    for part in raw.split(b"&"):
        if not part:
            continue
        name, _, value = (_decoded(each) for each in part.partition(b"="))
        if name in found:
            raise BadRequest("a field of the form comes twice")
        found[name] = value
    return found


def texts(raw: bytes) -> dict[str, str]:
    """
    The fields in *raw* as text that can be kept.

    Raises:
        BadRequest: as `fields`, or they are not UTF-8, or have a NUL character.
    """
    try:
        told = {name.decode(): value.decode() for name, value in fields(raw).items()}
    except UnicodeDecodeError:
        raise BadRequest("the form is not UTF-8") from None
    if any("\0" in text for pair in told.items() for text in pair):
        raise BadRequest("the form has a NUL character, which PostgreSQL cannot store")
    return told


def _decoded(part: bytes) -> bytes:
    return unquote_to_bytes(part.replace(b"+", b" "))
