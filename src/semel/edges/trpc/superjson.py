"""
superjson: JSON, and beside it which values are more than JSON.

    {"json": {"at": "2026-01-02T03:04:05.678Z"}, "meta": {"values": {"at": ["Date"]}, "v": 1}}

`values` is a tree: a list names the type of a value and what is annotated inside it, an object
maps paths to trees. An int beyond 2^53 is a bigint on the wire, where a number would be another.

Source: superjson 2.2.7, plainer.ts and transformer.ts.
"""

from __future__ import annotations

import copy
import math
import re
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

from semel.core.canonical import DEPTH_MAX, INTEGER_MAX
from semel.edges.trpc import javascript
from semel.edges.trpc.transformer import Dumped, Loaded
from semel.edges.trpc.values import UNDEFINED, BigInt, Map, Set, Url

if TYPE_CHECKING:
    from collections.abc import Callable

_UINT8 = ["typed-array", "Uint8Array"]
#: Types of which JSON.stringify writes less than there is.
_LOSSY = frozenset({"set", "map", "number", "typed-array"})
_INTEGER = re.compile(r"-?\d{1,1000}")
_NUMBERS = frozenset({"NaN", "Infinity", "-Infinity", "-0"})
_FORBIDDEN = frozenset({"__proto__", "constructor", "prototype"})


class SuperJSON:
    """Values wrapped as superjson does."""

    def load(self, wire: Any) -> Loaded:
        """The value that *wire* stands for; ValueError where it is not superjson's."""
        if wire is UNDEFINED:
            return Loaded(UNDEFINED)
        if not isinstance(wire, dict) or "json" not in wire:
            raise ValueError('the input is not wrapped by superjson: {"json": ...}')
        meta = wire.get("meta") or {}
        if not isinstance(meta, dict):
            raise ValueError("superjson's meta is no object")  # noqa: TRY004 - of the wire
        reader = _Reader(legacy=not meta.get("v"))
        value = reader.apply(
            wire["json"], meta.get("values"), meta.get("referentialEqualities")
        )
        return Loaded(value, reader.lossy)

    def dump(self, value: Any) -> Dumped:
        """*value* and its annotations; TypeError or ValueError where it has no form."""
        json, meta = _walk(value, DEPTH_MAX)
        return Dumped(javascript.stringify(json), meta)

    def data(self, dumped: Dumped) -> str | None:
        """Wrapped, also what is undefined."""
        if dumped.json is None:
            return '{"json":null,"meta":{"values":["undefined"],"v":1}}'
        return _wrapped(dumped.json, dumped.meta)

    def error(self, shape: str) -> str:
        """Wrapped."""
        return _wrapped(shape, None)

    def line(self, text: str, annotations: list[tuple[str, Any]]) -> str:
        """Wrapped as a whole, with the annotations of every value in it."""
        values: dict[str, Any] = {}
        for path, tree in annotations:
            if isinstance(tree, list):
                values[path] = tree
            elif tree is not None:
                values.update({f"{path}.{key}": inner for key, inner in tree.items()})
        return _wrapped(text, values or None)


def _wrapped(text: str, meta: Any) -> str:
    if meta is None:
        return f'{{"json":{text}}}'
    return f'{{"json":{text},"meta":{{"values":{javascript.stringify(meta)},"v":1}}}}'


def _walk(value: Any, left: int) -> tuple[Any, Any]:
    """What stands for *value* in JSON, and its tree; None where it is plain JSON."""
    if left <= 0:
        raise ValueError("too many levels of nesting, or a value in itself")
    for kind, write in _KINDS:
        if isinstance(value, kind):
            return write(value, left)
    if value is UNDEFINED:
        return None, ["undefined"]
    known = javascript.plain(value)
    if known is value:
        raise TypeError(f"{type(value).__name__} has no form in superjson")
    return _walk(known, left - 1)


def _int(value: int, _left: int) -> tuple[Any, Any]:
    big = abs(value) > INTEGER_MAX
    return (str(value), ["bigint"]) if big else (value, None)


def _float(value: float, _left: int) -> tuple[Any, Any]:
    if math.isnan(value):
        return "NaN", ["number"]
    if math.isinf(value):
        return ("Infinity" if value > 0 else "-Infinity"), ["number"]
    if value == 0 and math.copysign(1, value) < 0:
        return "-0", ["number"]
    return value, None


def _items(items: list[Any], own: list[Any] | None, left: int) -> tuple[Any, Any]:
    inner: dict[str, Any] = {}
    for index, item in enumerate(items):
        items[index], tree = _walk(item, left - 1)
        _graft(inner, str(index), tree)
    return items, _tree(own, inner)


def _members(members: dict[Any, Any], left: int) -> tuple[Any, Any]:
    inner: dict[str, Any] = {}
    json: dict[str, Any] = {}
    for name, member in members.items():
        if not isinstance(name, str):
            raise TypeError(f"a member's name is no string but {type(name).__name__}")
        if name in _FORBIDDEN:
            raise ValueError(f"superjson refuses a member of the name {name}")
        json[name], tree = _walk(member, left - 1)
        _graft(inner, name.replace("\\", "\\\\").replace(".", "\\."), tree)
    return json, _tree(None, inner)


def _graft(inner: dict[str, Any], key: str, tree: Any) -> None:
    if isinstance(tree, list):
        inner[key] = tree
    elif tree:
        inner.update({f"{key}.{path}": below for path, below in tree.items()})


def _tree(own: list[Any] | None, inner: dict[str, Any]) -> Any:
    if own is None:
        return inner or None
    return [*own, inner] if inner else own


#: The first that fits: a bool is an int, a Url is a str.
_KINDS: tuple[tuple[Any, Callable[[Any, int], tuple[Any, Any]]], ...] = (
    (Url, lambda value, _: (str(value), ["URL"])),
    ((str, bool, type(None)), lambda value, _: (value, None)),
    (BigInt, lambda value, _: (str(int(value)), ["bigint"])),
    (int, _int),
    (float, _float),
    (datetime, lambda value, _: (javascript.moment(value), ["Date"])),
    (date, lambda value, _: (value.isoformat(), None)),
    ((bytes, bytearray), lambda value, _: (list(value), [_UINT8])),
    (Map, lambda value, left: _items([[k, item] for k, item in value], ["map"], left)),
    ((Set, set, frozenset), lambda value, left: _items(list(value), ["set"], left)),
    ((list, tuple), lambda value, left: _items(list(value), None, left)),
    (dict, _members),
)


class _Reader:
    """Gives the annotated values of one input their types."""

    def __init__(self, *, legacy: bool) -> None:
        self._legacy = legacy
        self.lossy = False

    def apply(self, json: Any, values: Any, same: Any) -> Any:
        """*json* with its types; ValueError where the annotations do not fit it."""
        root = [copy.deepcopy(json) if values else json]  # the wire stays what is digested
        try:
            if values:
                self._tree(root, [0], values)
            self._no_references(root, same)
        except (IndexError, KeyError, TypeError, AttributeError, RecursionError):
            raise ValueError("superjson's meta does not fit its json") from None
        return root[0]

    def _tree(self, root: list[Any], path: list[str | int], tree: Any) -> None:
        children = (tree[1] if len(tree) > 1 else None) if isinstance(tree, list) else tree
        for key, below in (children or {}).items():
            self._tree(root, [*path, *self._path(key)], below)
        if not isinstance(tree, list):
            return
        parent = _at(root, path[:-1])
        key = _key(parent, path[-1])
        value = self._typed(parent[key], tree[0])
        if value is not UNDEFINED or parent is root:
            parent[key] = value
        elif isinstance(parent, dict):
            del parent[key]
        else:
            parent[key] = None

    def _typed(self, json: Any, kind: Any) -> Any:
        name = "typed-array" if kind == _UINT8 else kind
        if isinstance(name, str) and name in _TYPES:
            type_, make = _TYPES[name]
            self.lossy |= name in _LOSSY
            if isinstance(json, type_):
                return make(json)
        raise ValueError(f"superjson's {str(kind)[:40]} is not supported here, or is none")

    def _path(self, key: str) -> list[str]:
        """*key* taken apart at its dots; before version 1 only dots were escaped."""
        escape = r"\\\." if self._legacy else r"\\[\\.]"
        parts, last = [""], 0
        for found in re.finditer(rf"{escape}|\.", key):
            parts[-1] += key[last : found.start()]
            last = found.end()
            if found[0] == ".":
                parts.append("")
            else:
                parts[-1] += found[0][1]
        parts[-1] += key[last:]
        return parts

    def _no_references(self, root: list[Any], same: Any) -> None:
        """
        Refuse what `dedupe: true` left out; copies are as good as one object otherwise.

        An input of a few bytes could refer to itself and grow without bound.
        """
        if not same:
            return
        groups = [same[0]] if isinstance(same, list) else []
        others = (same[1] if len(same) > 1 else {}) if isinstance(same, list) else same
        for paths in (*groups, *others.values()):
            for each in paths:
                if _at(root[0], self._path(each)) is None:
                    raise ValueError(
                        "superjson with dedupe is not supported: use dedupe: false"
                    )


def _bigint(text: str) -> BigInt:
    if not _INTEGER.fullmatch(text):
        raise ValueError("superjson's bigint is none, or has more than 1000 digits")
    return BigInt(text)


def _special(text: str) -> float:
    if text not in _NUMBERS:
        raise ValueError("superjson's number is none of NaN, Infinity, -Infinity and -0")
    return float(text)


def _moment(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError("superjson's Date is no ISO date and time") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _at(root: Any, path: list[Any]) -> Any:
    node = root
    for step in path:
        node = node[_key(node, step)]
    return node


def _key(node: Any, step: str | int) -> Any:
    return int(step) if isinstance(node, list) else step


#: What a type is written as, and how it is read.
_TYPES: dict[str, tuple[type, Callable[[Any], Any]]] = {
    "undefined": (object, lambda _: UNDEFINED),
    "bigint": (str, _bigint),
    "Date": (str, _moment),
    "set": (list, Set),
    "map": (list, lambda pairs: Map([key, item] for key, item in pairs)),
    "number": (str, _special),
    "URL": (str, Url),
    "typed-array": (list, bytes),
}
