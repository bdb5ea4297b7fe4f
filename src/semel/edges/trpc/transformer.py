"""
Transformers: how a value is wrapped on the wire. Plain leaves it as JSON, SuperJSON is the other.

A value that was dumped is kept as two texts, so that an answer that was stored is sent again byte
for byte: the JSON of it, and what the transformer must say beside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from semel.edges.trpc.javascript import stringify
from semel.edges.trpc.values import UNDEFINED


@dataclass(frozen=True, slots=True)
class Dumped:
    """A value for the wire: its JSON, None where it is undefined, and annotations beside it."""

    json: str | None
    meta: Any = None


@dataclass(frozen=True, slots=True)
class Loaded:
    """What came; `lossy` where JSON.stringify would leave something of it out."""

    value: Any
    lossy: bool = False


class Transformer(Protocol):
    """Both directions of the wire."""

    def load(self, wire: Any) -> Loaded:
        """
        What stands in *wire*, a JSON value or UNDEFINED.

        Raises:
            ValueError: it is not wrapped as it must be.
        """
        ...

    def dump(self, value: Any) -> Dumped:
        """
        *value* for the wire.

        Raises:
            TypeError, ValueError: it has no form there.
        """
        ...

    def data(self, dumped: Dumped) -> str | None:
        """The text of `result.data`; None where there is none."""
        ...

    def error(self, shape: str) -> str:
        """The text of `error` around a *shape*."""
        ...

    def line(self, text: str, annotations: list[tuple[str, Any]]) -> str:
        """A line of JSON with *annotations*, each a value's in it by its path there."""
        ...


class Plain:
    """JSON as it is."""

    def load(self, wire: Any) -> Loaded:
        """The value itself."""
        return Loaded(wire)

    def dump(self, value: Any) -> Dumped:
        """Its JSON."""
        return Dumped(None if value is UNDEFINED else stringify(value))

    def data(self, dumped: Dumped) -> str | None:
        """Its JSON."""
        return dumped.json

    def error(self, shape: str) -> str:
        """The shape."""
        return shape

    def line(self, text: str, annotations: list[tuple[str, Any]]) -> str:
        """The line: what annotations say is lost, as in JSON.stringify."""
        del annotations
        return text
