"""
Inputs: what each call of a request was given, decoded when the first call asks.

A procedure that reads no input and has no key is answered whatever the body is, as tRPC does it.
The digest of an input is version 1, of what JSON.stringify writes for the value after the
transformer, which is what rows of before hold. Where that would leave something out (a Set, a Map,
a number that is not finite), two inputs could share it: then version 2 of the wire is kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from semel.core.digest import Input
from semel.core.form import form_text
from semel.core.spelling import spelled
from semel.edges.rest import multipart
from semel.edges.trpc import javascript
from semel.edges.trpc.errors import TRPCError
from semel.edges.trpc.values import UNDEFINED
from semel.errors import BadInput, BadRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from semel.config import DigestKey
    from semel.core.canonical import Version
    from semel.edges.trpc.transformer import Transformer

_OCTETS = b"application/octet-stream\n"


@dataclass(frozen=True, slots=True)
class File:
    """A file of a form."""

    name: str
    type: str | None
    content: bytes


class Form(list[tuple[str, "str | File"]]):
    """A form: pairs of a name and a text or a File, in their order."""

    def get(self, name: str) -> str | File | None:
        """The first value of *name*."""
        return next((value for key, value in self if key == name), None)


@dataclass(frozen=True, slots=True)
class Given:
    """One call's input; UNDEFINED where there is none."""

    value: Any = UNDEFINED
    wire: Any = UNDEFINED
    lossy: bool = False
    #: Of what is no JSON: the bytes that are digested.
    marked: bytes | None = None

    @property
    def present(self) -> bool:
        """Whether there is one; null is one."""
        return self.value is not UNDEFINED

    def digested(self, keys: Sequence[DigestKey]) -> Input:
        """
        This input, ready to be digested.

        Raises:
            BadInput: it has no digest.
        """
        text = self._texts()
        made = Input(text, 2 if self.lossy or self.marked is not None else 1, keys)
        made.envelopes()  # what has no digest is refused here, not in an open transaction
        return made

    def _texts(self) -> Any:
        if self.marked is not None:
            marked = self.marked
            return lambda _version: marked
        first = _bytes(self.value, finite=not self.lossy)
        second = _bytes(_unversioned(self.wire), finite=True) if self.lossy else first

        def spell(version: Version) -> bytes:
            text = first if version == 1 else second
            if text is None:
                return b"null" if version == 1 else b""
            return spelled(text, version, "js")

        return spell


class Inputs:
    """
    The inputs of one request.

    Args:
        text: The body, or `input` of the query; None where there is none.
        count: How many calls the batch has; None: it is no batch.
        malformed: The code of an error for what is no JSON.
    """

    def __init__(
        self,
        transformer: Transformer,
        text: bytes | str | None,
        count: int | None,
        malformed: str = "BAD_REQUEST",
    ) -> None:
        self._transformer = transformer
        self._malformed = malformed
        self._text = text
        self._count = count
        self._read: list[Any] | TRPCError | None = None

    def check(self) -> None:
        """Decode now; TRPCError where it cannot be."""
        if self._read is None:
            try:
                self._read = self._decoded()
            except TRPCError as bad:
                self._read = bad
            except ValueError as bad:
                self._read = TRPCError(self._malformed, str(bad))
        if isinstance(self._read, TRPCError):
            raise self._read

    def given(self, index: int) -> Given:
        """
        The input of call *index*.

        Raises:
            TRPCError: the body is no JSON, or the input is not wrapped as the transformer does.
        """
        self.check()
        wires = self._read
        wire = wires[index] if isinstance(wires, list) else UNDEFINED
        try:
            loaded = self._transformer.load(wire)
        except ValueError as bad:
            raise TRPCError("BAD_REQUEST", str(bad)) from None
        return Given(loaded.value, wire, loaded.lossy)

    def _decoded(self) -> list[Any]:
        wire = javascript.parse(self._text) if self._text else UNDEFINED
        if self._count is None:
            return [wire]
        if wire is UNDEFINED:
            return [UNDEFINED] * self._count
        if not isinstance(wire, dict):
            raise TRPCError(
                "BAD_REQUEST", '"input" needs to be an object when doing a batch call'
            )
        return [wire.get(str(index), UNDEFINED) for index in range(self._count)]


class Uploaded(Inputs):
    """The input of a request that is a form, or bytes; there is one call."""

    def __init__(self, content_type: str, body: bytes, *, form: bool) -> None:
        self._content_type = content_type
        self._body = body
        self._form = form

    def check(self) -> None:
        """Nothing to decode yet."""

    def given(self, index: int) -> Given:
        """The form, or the bytes; TRPCError where it is no form."""
        del index
        if not self._form:
            return Given(self._body, marked=_OCTETS + self._body)
        try:
            parts = multipart.parts(self._content_type, self._body)
            digested = form_text(multipart.read(self._content_type, self._body))
        except BadRequest as bad:
            raise TRPCError("BAD_REQUEST", str(bad)) from None
        form = Form(
            (
                part.name,
                part.content.decode(errors="replace")
                if part.filename is None
                else File(part.filename, part.type, part.content),
            )
            for part in parts
        )
        return Given(form, marked=digested)


def _bytes(value: Any, *, finite: bool) -> bytes | None:
    if value is UNDEFINED:
        return None
    try:
        return javascript.stringify(value, finite=finite).encode()
    except (TypeError, ValueError) as bad:
        raise BadInput(f"the input has no digest: {bad}") from None


def _unversioned(wire: Any) -> Any:
    """The wrapping of superjson without the version of its own format."""
    if isinstance(wire, dict) and isinstance(wire.get("meta"), dict):
        meta = {name: value for name, value in wire["meta"].items() if name != "v"}
        return {**wire, "meta": meta}
    return wire
