"""
Forms: what of a multipart request is digested.

Each part counts by name, file name, type and content, in the order in which they were sent. The
boundary, which a client draws anew for each attempt, does not; nor does where a file lies
meanwhile. No part is held here: a file is hashed in pieces.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from semel.core.canonical import canonical
from semel.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Parts of one form.
PARTS_MAX = 10_000
#: No JSON begins with it: a form is never taken for a JSON input.
_MARK = b"multipart/form-data\n"


@dataclass(frozen=True, slots=True)
class FormPart:
    """One field or file of a form."""

    name: str
    sha256: str  # of the content, in hex
    filename: str | None = None
    type: str | None = None  # as sent; None where it was not

    @classmethod
    def of(
        cls,
        name: str,
        content: bytes | Iterable[bytes],
        *,
        filename: str | None = None,
        type: str | None = None,  # noqa: A002 - what a part calls it
    ) -> FormPart:
        """The part with this *content*, which may come in pieces."""
        found = hashlib.sha256()
        for piece in (content,) if isinstance(content, bytes) else content:
            found.update(piece)
        return cls(name, found.hexdigest(), filename, type)


def form_text(parts: Iterable[FormPart]) -> bytes:
    """
    What is digested of a form, whatever the version.

    Raises:
        BadInput: more than PARTS_MAX, or a name that is no Unicode.
    """
    rows = [[part.name, part.filename, part.type, part.sha256] for part in parts]
    if len(rows) > PARTS_MAX:
        raise BadInput(f"the form has more than {PARTS_MAX} parts")
    try:
        return _MARK + canonical(rows)
    except ValueError as bad:
        raise BadInput(f"the form has no digest: {bad}") from None
