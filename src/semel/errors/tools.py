"""Why a tool's answer is none: each is raised where a handler awaits `run.tool`."""

from __future__ import annotations

from semel.errors.base import SemelError


class ToolTimedOut(SemelError):
    """The tool did not answer within its timeout. It may have acted; the message says so."""

    code = "E-TOOL-001"
    sqlstate = "SMT01"
    http_status = 409
    title = "the tool timed out"
    remedy = "Catch ToolTimedOut to go on without it, or allow more time with timeout=."


class ToolUnknown(SemelError):
    """The call was started and not answered, and the tool does not allow to repeat it."""

    code = "E-TOOL-002"
    sqlstate = "SMT02"
    http_status = 409
    title = "the tool's outcome is unknown"
    remedy = (
        "Find out what it did and go on from there; a tool that honours the idempotency key, said"
        " with honours_key in semel.toml, is asked again instead."
    )


class ToolError(SemelError):
    """The tool answered that it failed, or something that cannot be kept. It is not repeated."""

    code = "E-TOOL-003"
    sqlstate = "SMT03"
    http_status = 409
    title = "the tool answered an error"
    remedy = "Read the message, which is the tool's own; catch ToolError to go on without it."


class ToolNotCalled(SemelError):
    """The call was never made: no such tool, or its server could not be reached."""

    code = "E-TOOL-004"
    sqlstate = "SMT04"
    http_status = 409
    title = "the tool was not called"
    remedy = "Check [tools] in the semel.toml of the workers, and that the server is up."


class ToolDown(SemelError):
    """A tool's server is not there, or gave no answer to a call that may be repeated."""

    code = "E-TOOL-005"
    sqlstate = "SMT05"
    http_status = 409
    retryable = True
    title = "the tool's server is down"
    remedy = "It is tried again; start the server, or mend its section in semel.toml."


class NoSuchCall(SemelError):
    """No call has this token. Says nothing more, whatever is known."""

    code = "E-TOOL-006"
    sqlstate = "SMT06"
    http_status = 404
    title = "no such tool call"
    remedy = "Post to the address that came with the call, copied whole."


class CallEnded(SemelError):
    """The call has its answer, or nobody waits for one any more. The first answer stands."""

    code = "E-TOOL-007"
    sqlstate = "SMT07"
    http_status = 409
    title = "the call has ended"
    remedy = "Nothing to do: the answer was not needed any more."
