"""
Journal: what one run has done so far, and which step the handler asks for now.

A handler is executed again from its start after a crash or a wait; each step it asks for is
looked up here by its key. The key is the step's name, or name#2, name#3 when the handler asks for
the name again. Calls that the handler makes itself, not a task beside it, also have a place: the
nth of them. A place whose key differs from the journal's says that the code has changed.

Holds no connection and decides nothing that the database does not confirm.
"""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from semel.core.steps import Entry
from semel.core.text import dump
from semel.errors import BadRequest, JournalMismatch, StepFailed, StepInParallel

KEY_BYTES_MAX = 255
#: Of an error this much is kept.
MESSAGE_CHARS_MAX = 2000
ARGS_CHARS_MAX = 8000


@dataclass(slots=True)
class Call:
    """One step that the handler asks for."""

    key: str
    kind: str
    place: int | None
    result: str | None = None  # JSON text, when the journal has it
    detail: str | None = None
    error: dict[str, Any] | None = None  # when the handler went on without it
    intended: bool = False  # its undo was promised before
    tries: int = 0  # that failed in this attempt

    def entry(self, entry: Any, content: str | None, detail: str | None = None) -> Entry:
        """A line of the journal for it."""
        return Entry(self.key, entry, self.kind, self.place, content, detail)


class Journal:
    """
    The journal of one run as an attempt found it, and what the attempt has asked for.

    Args:
        text: JSON of [key, entry, kind, place, attempt, content, detail] rows, oldest first.
        attempt: The number of this attempt: a step's tries are counted within it.
    """

    def __init__(self, text: str | None, *, attempt: int) -> None:
        self._results: dict[str, tuple[str, str, str | None]] = {}  # kind, content, detail
        self._errors: dict[str, dict[str, Any]] = {}
        self._tries: dict[str, int] = {}
        self._intents: set[str] = set()
        self._places: dict[int, str] = {}
        self._asked: dict[str, int] = {}
        self._answered: set[str] = set()
        self._flying: set[str] = set()
        self._patches: dict[str, bool] = {}
        self._place = 0
        for key, entry, kind, place, at, content, detail in json.loads(text) if text else ():
            if place is not None:
                self._places.setdefault(place, key)
            match entry:
                case "result":
                    self._results[key] = (
                        kind,
                        json.dumps(content),
                        detail and json.dumps(detail),
                    )
                case "caught":
                    self._errors[key] = content
                case "error" if at == attempt:
                    self._tries[key] = self._tries.get(key, 0) + 1
                case "intent":
                    self._intents.add(key)
                case _:
                    pass

    def ask(self, name: str, kind: str, *, home: bool) -> Call:
        """
        The step that the handler asks for by *name*; `done` must follow.

        Args:
            home: Whether the handler itself asks, and not a task beside it.

        Raises:
            BadRequest: the name is none.
            JournalMismatch: the journal has another step in its place, or another kind of step.
            StepInParallel: a step of this name is under way, or another has had its key.
        """
        check_name(name)
        if name in self._flying:
            raise StepInParallel(
                f"step {name!r} is under way already; give each parallel step a name of its own"
            )
        count = self._asked.get(name, 0) + 1
        key = name if count == 1 else f"{name}#{count}"
        if key != name:
            check_name(key)
        if key in self._answered:
            raise StepInParallel(
                f"two steps have the key {key!r}; give them names that no repetition of another has"
            )
        place = self._next(key) if home else None
        self._asked[name] = count
        self._flying.add(name)
        call = Call(key, kind, place)
        if (found := self._results.get(key)) is not None:
            if found[0] not in {kind, "skip"}:
                raise JournalMismatch(
                    f"step {key!r} is a {found[0]} in the journal, the code calls a {kind}"
                )
            call.result, call.detail = found[1:]
        call.error = self._errors.get(key)
        call.intended = key in self._intents
        call.tries = self._tries.get(key, 0)
        self._answered.add(key)
        return call

    def done(self, name: str) -> None:
        """The step that was asked for by *name* is over, or waits."""
        self._flying.discard(name)

    def keep(self, call: Call, result: str, detail: str | None = None) -> None:
        """The journal has the result now."""
        call.result, call.detail = result, detail

    def patched(self, name: str) -> tuple[bool, Entry | None]:
        """
        Whether this run takes the new path at a change of the code, and what to journal of that.

        A run that was past this place before the change keeps the old path.
        """
        check_name(name)
        key = f"patch:{name}"
        check_name(key)
        if name in self._patches:
            return self._patches[name], None
        place = self._place + 1
        if self._places.get(place) == key:
            self._place = place
            new, entry = True, None
        elif any(known >= place for known in self._places):
            new, entry = False, None
        else:
            self._place = place
            new, entry = True, Entry(key, "patch", "patch", place)
        self._patches[name] = new
        return new, entry

    def close(self) -> None:
        """
        The handler has returned.

        Raises:
            JournalMismatch: the journal has a step that it never asked for.
        """
        strays = [key for key in self._results if key not in self._answered]
        if strays:
            raise JournalMismatch(
                f"the journal has step {strays[0]!r}, which the code never came to"
                f"{f' (and {len(strays) - 1} more)' if len(strays) > 1 else ''}"
            )

    def _next(self, key: str) -> int:
        self._place += 1
        known = self._places.get(self._place)
        if known is not None and known != key:
            raise JournalMismatch(
                f"step {self._place} of the handler is {known!r} in the journal,"
                f" the code calls {key!r}"
            )
        return self._place


def check_name(name: Any) -> None:
    """
    Check what a program that nobody type-checks calls a step.

    Raises:
        BadRequest: it is no text of 1 to 255 bytes that PostgreSQL can keep.
    """
    fits = isinstance(name, str) and 1 <= len(name) <= KEY_BYTES_MAX and "\0" not in name
    try:
        if fits and len(name.encode()) <= KEY_BYTES_MAX:
            return
    except UnicodeEncodeError:
        pass  # half of a surrogate pair
    raise BadRequest(
        f"a step's name is a text of 1 to {KEY_BYTES_MAX} bytes, not {name!r}"[:150]
    )


def told(error: BaseException, tries: int) -> dict[str, Any]:
    """*error* as the journal keeps it."""
    kind = type(error)
    return {
        "type": f"{kind.__module__}.{kind.__qualname__}",
        "module": kind.__module__,
        "message": _message(error),
        "args": _args(error),
        "try": tries,
    }


def _message(error: BaseException) -> str:
    try:
        said = str(error)
    except Exception:  # noqa: BLE001 - a class with a __str__ of its own
        said = "(an error that says nothing of itself)"
    return said.replace("\0", "")[:MESSAGE_CHARS_MAX].encode("utf-8", "replace").decode()


def _args(error: BaseException) -> list[Any]:
    """What *error* was made of, where the journal can keep it; none is enough for most."""
    args = list(error.args)
    if not all(isinstance(arg, str | int | float | bool | None) for arg in args):
        return []
    try:
        text = dump(args)
    except ValueError:
        return []
    return args if len(text) <= ARGS_CHARS_MAX else []


def raised(error: dict[str, Any]) -> BaseException:
    """
    The exception that `told` told, so that the handler catches again what it caught.

    Of its own class where that is loaded, with its arguments as far as they were kept; what its
    constructor would make of them is not there. Else StepFailed.
    """
    module = str(error.get("module", ""))
    kind: Any = sys.modules.get(module)
    for name in str(error.get("type", ""))[len(module) + 1 :].split("."):
        kind = getattr(kind, name, None)
    args = error.get("args") or [error.get("message", "")]
    if isinstance(kind, type) and issubclass(kind, Exception):
        try:
            return kind(*args)
        except Exception:  # noqa: BLE001 - a constructor that wants more than was kept
            with suppress(Exception):
                bare = kind.__new__(kind)
                bare.args = tuple(args)
                return bare
    return StepFailed(f"{error.get('type')}: {error.get('message')}")
