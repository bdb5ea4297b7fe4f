"""Why somebody may not ask or decide, or was not told."""

from __future__ import annotations

from semel.errors.base import SemelError


class NoSuchApproval(SemelError):
    """No such link or approval, or what it asked is void. Says nothing more, whatever is known."""

    code = "E-APPROVAL-001"
    sqlstate = "SMA01"
    http_status = 404
    title = "no such approval"
    remedy = "Ask whoever sent the link; `semel approval list` shows what is open."


class ApprovalExpired(SemelError):
    """It was not decided in time; the run has failed."""

    code = "E-APPROVAL-002"
    sqlstate = "SMA02"
    http_status = 410
    title = "approval expired"
    remedy = "Start or retry the run to be asked again; ttl= allows more time."


class ApprovalDecided(SemelError):
    """It was decided before; the first decision stands and is named."""

    code = "E-APPROVAL-003"
    sqlstate = "SMA03"
    http_status = 409
    title = "already decided"
    remedy = "Nothing to do: the answer names the decision."


class ApprovalRejected(SemelError):
    """A person rejected it. Catch it in the handler to go on otherwise; else the run fails."""

    code = "E-APPROVAL-004"
    sqlstate = "SMA04"
    http_status = 409
    title = "rejected"
    remedy = "Read who rejected it and why in `semel run show`."


class NotifyFailed(SemelError):
    """A person could not be told of an approval. It can still be decided otherwise."""

    code = "E-NOTIFY-001"
    sqlstate = "SMN01"
    http_status = 409
    retryable = True
    title = "the notification was not sent"
    remedy = (
        "Read the notification run in `semel run show` and mend its notifier in semel.toml."
    )


class Unauthenticated(SemelError):
    """No token, or none that is known in this project."""

    code = "E-AUTH-001"
    sqlstate = "SMU01"
    http_status = 401
    title = "unauthenticated"
    remedy = "Send Authorization: Bearer with a token of `semel token create`."


class Forbidden(SemelError):
    """The token's role does not allow this."""

    code = "E-AUTH-002"
    sqlstate = "SMU02"
    http_status = 403
    title = "forbidden"
    remedy = "Use a token whose role allows it."
