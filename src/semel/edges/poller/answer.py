"""
An answer of getUpdates: the updates in it, byte for byte, or why there are none.

An answer that is none leaves everything as it was, and its updates come again. One update that is
unusable must not hold up those behind it, so each is cut out as it stands and read by itself.

Source: Bot API, "Making requests", Update, ResponseParameters; telegram-bot-api, Client.cpp.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from semel.edges.notifiers.notifier import cleaned

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from semel.core.polls import State

#: An id is beyond this by no server's doing.
ID_MAX = 2**62
#: A server that asks for a longer pause gets this one.
RETRY_SECONDS_MAX = 3600

_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{},]', re.DOTALL)
_ID = re.compile(r'\s*\{\s*"update_id"\s*:\s*([0-9]{1,19})\s*[,}]')

_OK = 200
_CLIENT_FAULTS = range(400, 500)
_REDIRECTS = range(300, 400)


@dataclass(frozen=True, slots=True)
class Update:
    """One element of the result."""

    id: int | None  # None: it has none that can be one
    raw: bytes


class Unanswered(Exception):
    """The server did not answer with updates. str() is what it said, or how it failed."""

    def __init__(self, state: State, said: str, *, seconds: float | None = None) -> None:
        super().__init__(said)
        self.state: State = state
        self.seconds = seconds  # the pause it asks for


def read(status: int, headers: Mapping[str, str], body: bytes, *, token: str) -> list[Update]:
    """
    The updates in an answer, in its order.

    Args:
        status: Of HTTP.
        headers: Names in lower case.
        token: Of the bot; it stands in no error.

    Raises:
        Unanswered: there are none in it.
    """
    text = body.decode("utf-8", "surrogateescape")
    told, is_read = _told(text)
    if status in _REDIRECTS:
        raise Unanswered("refused", f"it answered {status}, and a redirect is not followed")
    if status != _OK or (isinstance(told, dict) and told.get("ok") is not True):
        raise _refusal(status, headers, told, token)
    result = told.get("result") if isinstance(told, dict) else None
    if is_read and not isinstance(result, list):
        raise Unanswered("failing", "its answer is no list of updates")
    pieces = _pieces(text)
    if is_read and isinstance(result, list):
        return [
            Update(_id_of(one), piece.encode("utf-8", "surrogateescape"))
            for one, piece in zip(result, pieces, strict=True)
        ]
    return [
        Update(
            int(found[1]) if (found := _ID.match(piece)) else None,
            piece.encode("utf-8", "surrogateescape"),
        )
        for piece in pieces
    ]


def _told(text: str) -> tuple[Any, bool]:
    """The answer as JSON; False: it is nested too deep to be read as a whole."""
    try:
        return json.loads(text), True
    except RecursionError:
        return {"ok": True}, False
    except ValueError:
        return None, True


def _refusal(status: int, headers: Mapping[str, str], told: Any, token: str) -> Unanswered:
    told = told if isinstance(told, dict) else {}
    code = told.get("error_code") if status == _OK else status
    text = cleaned(told.get("description"), token, token.partition(":")[2])
    said = f"it answered {code}{f': {text}' if text else ''}"
    match code:
        case 409:
            kind: State = "webhook" if "webhook" in text.lower() else "conflict"
            return Unanswered(kind, said)
        case 429:
            return Unanswered("throttled", said, seconds=_seconds(headers, told))
        case int() if code in _CLIENT_FAULTS:
            return Unanswered("refused", said)
    return Unanswered("failing", said, seconds=_seconds(headers, told))


def _seconds(headers: Mapping[str, str], told: Mapping[str, Any]) -> float | None:
    parameters = told.get("parameters")
    seconds = parameters.get("retry_after") if isinstance(parameters, dict) else None
    if seconds is None and re.fullmatch("[0-9]{1,9}", headers.get("retry-after", "")):
        seconds = int(headers["retry-after"])
    if not isinstance(seconds, int) or isinstance(seconds, bool):
        return None
    return float(min(max(seconds, 0), RETRY_SECONDS_MAX))


def _id_of(update: Any) -> int | None:
    told = update.get("update_id") if isinstance(update, dict) else None
    if isinstance(told, int) and not isinstance(told, bool) and 0 <= told < ID_MAX:
        return told
    return None


def _pieces(text: str) -> list[str]:
    """The elements of the member `result` of the object in *text*, each as it stands."""
    found: list[str] = []
    for begin, end in _parts(text, text.index("{")):
        name = _STRING.search(text, begin, end)
        if name is None or json.loads(name[0]) != "result":
            continue
        at = text.find("[", name.end(), end)
        pieces = [text[b:e].strip() for b, e in _parts(text, at)] if at >= 0 else []
        found = [] if pieces == [""] else pieces
    return found


def _parts(text: str, at: int) -> Iterator[tuple[int, int]]:
    """Where the parts of the object or array that begins *at* begin and end."""
    depth, begin = 0, at + 1
    for token in _TOKEN.finditer(text, at):
        match token[0]:
            case "[" | "{":
                depth += 1
            case "]" | "}":
                depth -= 1
                if depth == 0:
                    yield begin, token.start()
                    return
            case "," if depth == 1:
                yield begin, token.start()
                begin = token.end()
