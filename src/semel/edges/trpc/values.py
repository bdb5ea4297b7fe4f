"""
Values that JavaScript has and Python does not, as handlers get and return them.

    undefined  UNDEFINED       a Date  datetime with its zone    a Map  Map, pairs in order
    bigint     BigInt, an int  a URL   Url, a str                a Set  Set, a list in order
    Uint8Array bytes           NaN, Infinity and -0 are floats
"""

from __future__ import annotations

from typing import Any

from semel.core.ecmascript import UNDEFINED, BigInt

__all__ = ["UNDEFINED", "BigInt", "Map", "Set", "Url"]


class Map(list[Any]):
    """A Map of JavaScript: pairs of a key of any kind and a value, in order."""


class Set(list[Any]):
    """A Set of JavaScript, in its order; a Python set could not hold every member."""


class Url(str):
    """A URL of JavaScript."""

    __slots__ = ()
