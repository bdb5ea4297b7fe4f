"""The root of the tree, and what is wrong with a request whatever it asks for."""

from __future__ import annotations

from typing import ClassVar


class SemelError(Exception):
    """Anything Semel refuses. str() is the sentence; the class says the rest."""

    code: ClassVar[str] = "E-REQUEST-001"
    sqlstate: ClassVar[str] = "SMQ01"
    http_status: ClassVar[int] = 400
    exit_code: ClassVar[int] = 1
    retryable: ClassVar[bool] = False
    title: ClassVar[str] = "refused"
    remedy: ClassVar[str] = "Mend what the message names and send it again."


class BadRequest(SemelError):
    """What the caller sent cannot be read as what it must be."""

    title = "malformed request"


class TooLarge(BadRequest):
    """A limit was passed. Nothing was kept."""

    code = "E-REQUEST-002"
    sqlstate = "SMQ02"
    http_status = 413
    title = "too large"
    remedy = "Send less, or raise the limit: in semel.toml, or where the application sets it."


class TooOften(BadRequest):
    """One address asked too often for what is not there."""

    code = "E-REQUEST-003"
    sqlstate = "SMQ03"
    http_status = 429
    retryable = True
    title = "too often"
    remedy = "Wait as long as Retry-After says; check that the link was copied whole."


class UnsupportedMedia(BadRequest):
    """The body is of a media type, or packed in a way, that is not read. Nothing was kept."""

    code = "E-REQUEST-005"
    sqlstate = "SMQ05"
    http_status = 415
    title = "unsupported media type"
    remedy = "Send it as the message says, without Content-Encoding."


class BadInput(BadRequest):
    """An operation's input has no digest: it is no JSON, says a thing twice, or passes a limit."""

    code = "E-REQUEST-004"
    sqlstate = "SMQ04"
    title = "unreadable input"
    remedy = "Send UTF-8 JSON that every reader reads alike; a large integer goes as a string."
