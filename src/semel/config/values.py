"""
Values of settings: what may be written for one, how it is read, and how it is shown again.

A duration always names its unit, so that no one has to know whether 30 is seconds or minutes.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import fields, is_dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from semel.errors import BadConfig

if TYPE_CHECKING:
    from collections.abc import Iterable

_UNITS = {"d": 86_400, "h": 3600, "m": 60, "s": 1, "ms": 0.001}
#: A type that allows only some words, by the name it has in the settings.
_CHOICES: dict[str, tuple[str, ...]] = {
    "Channel": (
        *("alertmanager", "api", "cloudevents", "discord", "gitea", "github", "hmac", "line"),
        *("slack", "standard", "stripe", "telegram", "telegram-poll"),
    ),
    "Authenticate": ("secret", "none"),
    "Algorithm": ("sha256", "sha384", "sha512", "sha1"),
    "Encoding": ("hex", "base64", "base64url"),
    "KeyForm": ("text", "hex", "base64"),
    "TimeUnit": ("s", "ms"),
    "RunOn": ("firing", "firing+resolved"),
    "Unit": ("notification", "alert"),
    "Kind": ("webhook", "telegram", "slack", "line"),
}


def read(name: str, wanted: str, value: Any, *, worded: bool = False) -> Any:
    """
    *value* as the type *wanted* names.

    Args:
        worded: It is from the environment, where a number and a truth are text.

    Raises:
        BadConfig: naming the setting *name* and what it may be.
    """
    if wanted == "bool":
        return _truth(name, value, worded=worded)
    if wanted == "int":
        return _number(name, value, worded=worded)
    if wanted == "timedelta | None" and value == "never":
        return None
    if wanted.startswith("timedelta"):
        return _duration(name, value, never=wanted != "timedelta")
    if wanted == "tuple[str, ...]":
        return _words(name, value, worded=worded)
    allowed = _CHOICES.get(wanted)
    if allowed is not None and value not in allowed:
        near = _meant(value, allowed)
        raise BadConfig(f"{name} is {value!r}: one of {', '.join(allowed)}{near}")
    if not isinstance(value, str):
        raise BadConfig(f"{name} is {value!r}: write text in quotes")
    return value


def known(where: str, table: Iterable[str], allowed: Iterable[str]) -> None:
    """Refuse a key of *table* that is not *allowed*, with the likeliest one that is."""
    allowed = list(allowed)
    for key in table:
        if key not in allowed:
            raise BadConfig(
                f"{where} has an unknown key {key!r}{_meant(key, allowed)};"
                f" there are {', '.join(sorted(allowed))}"
            )


def table(where: str, value: Any) -> dict[str, Any]:
    """*value* where the file must have a table."""
    if not isinstance(value, dict):
        raise BadConfig(f"{where} is {value!r}: it is a table")
    return value


def within(name: str, value: Any, low: Any, high: Any) -> None:
    """Refuse a *value* outside *low* to *high*, both allowed."""
    if not low <= value <= high:
        raise BadConfig(f"{name} is {shown(value)}: {shown(low)} to {shown(high)}")


def matches(where: str, key: str, value: str, pattern: re.Pattern[str], sentence: str) -> None:
    """Refuse a name that *pattern* does not cover."""
    if not pattern.fullmatch(value):
        raise BadConfig(f"{where} {key} is {value[:80]!r}: {sentence}")


def shown(value: Any) -> str:
    """A value as one writes it in the file, without quotes."""
    if isinstance(value, tuple):
        return ", ".join(value) or "none"
    if not isinstance(value, timedelta):
        return str(value)
    for unit, seconds in _UNITS.items():
        count = value / timedelta(seconds=seconds)
        if count >= 1 and count == int(count):
            return f"{int(count)}{unit}"
    return f"{value.total_seconds():g}s"


def plain(settings: Any) -> dict[str, Any]:
    """A frozen dataclass of settings as JSON; a secret as its reference."""
    return {each.name: _plain(getattr(settings, each.name)) for each in fields(settings)}


def _plain(value: Any) -> Any:
    if value is None:
        return "never"
    if isinstance(value, timedelta):
        return shown(value)
    if hasattr(value, "reference"):  # a secret: where it is, never what
        value = value.reference
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    if hasattr(value, "shown"):
        return value.shown()
    if is_dataclass(value):
        return {key: told for key, told in plain(value).items() if told != "never"}
    return value


def _truth(name: str, value: Any, *, worded: bool) -> bool:
    if isinstance(value, bool):
        return value
    word = value.lower() if worded else None
    if word in {"1", "true", "yes", "on"}:
        return True
    if word in {"0", "false", "no", "off"}:
        return False
    raise BadConfig(f"{name} is {value!r}: write true or false")


def _number(name: str, value: Any, *, worded: bool) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if worded and re.fullmatch(r"[+-]?[0-9]{1,18}", value):
        return int(value)
    mend = ", without quotes" if isinstance(value, str) and not worded else ""
    raise BadConfig(f"{name} is {value!r}: write a whole number{mend}")


def _words(name: str, value: Any, *, worded: bool) -> tuple[str, ...]:
    if worded:
        return tuple(word for word in re.split(r"[, ]+", value) if word)
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise BadConfig(f'{name} is {value!r}: write a list of texts, as in ["a", "b"]')
    return tuple(value)


def _duration(name: str, value: Any, *, never: bool) -> timedelta:
    found = (
        re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,6})?) *([a-z]+)", value)
        if isinstance(value, str)
        else None
    )
    if found is None or found[2] not in _UNITS:
        mend = ' or "never"' if never else ""
        raise BadConfig(
            f"{name} is {value!r}: write a number with its unit ms, s, m, h or d,"
            f' as in "30s"{mend}'
        )
    return timedelta(seconds=float(found[1]) * _UNITS[found[2]])


def _meant(word: Any, allowed: Iterable[str]) -> str:
    near = difflib.get_close_matches(str(word), list(allowed), 1)
    return f" (did you mean {near[0]!r}?)" if near else ""
