"""What is wrong with an event, its sender or its source."""

from __future__ import annotations

from semel.errors.base import SemelError


class NoSuchEvent(SemelError):
    """No event and no delivery has this id in this project, or its memory has ended."""

    code = "E-EVENT-001"
    sqlstate = "SMV01"
    http_status = 404
    title = "no such event"
    remedy = "Check the id and the project: `semel event list` shows what is there."


class NotReplayable(SemelError):
    """What came cannot be offered again: its bytes are not kept, or read as no event."""

    code = "E-EVENT-002"
    sqlstate = "SMV02"
    http_status = 409
    title = "not replayable"
    remedy = "`semel event show` says what is kept of it; `semel run retry` needs no body."


class NotImportable(SemelError):
    """A table is not the one to import from, or its ids are not those of the source."""

    code = "E-EVENT-003"
    sqlstate = "SMV03"
    http_status = 400
    title = "not importable"
    remedy = "Name a table of this database with the columns that the message lists."


class UnknownSource(SemelError):
    """No such source is configured in this project."""

    code = "E-SOURCE-001"
    sqlstate = "SMC01"
    http_status = 404
    title = "unknown source"
    remedy = "Add [sources.NAME] with this project to semel.toml and restart the ingress."


class NotAuthentic(SemelError):
    """The delivery does not carry the source's secret. Nothing was kept."""

    code = "E-SOURCE-002"
    sqlstate = "SMC02"
    http_status = 401
    title = "not authentic"
    remedy = "Give the sender one of the source's secrets."


class AddressRefused(SemelError):
    """The delivery came from an address that the source takes nothing from. Nothing was kept."""

    code = "E-SOURCE-004"
    sqlstate = "SMC04"
    http_status = 403
    title = "address refused"
    remedy = (
        "Add the sender's network to `allow` of the source; behind a proxy, the proxy's to"
        " [server] trusted_proxies."
    )


class SourceTooOften(SemelError):
    """The source takes no more for now. Nothing was kept; Retry-After says when to come back."""

    code = "E-SOURCE-005"
    sqlstate = "SMC05"
    http_status = 429
    retryable = True
    title = "rate of the source passed"
    remedy = "Send it again after Retry-After, or raise `rate` of the source."

    def __init__(self, said: str, *, wait: float = 1.0) -> None:
        super().__init__(said)
        self.wait = wait  # seconds


class Quarantined(SemelError):
    """Authentic, but unusable: kept raw, shown to the operator, and made no run."""

    code = "E-SOURCE-003"
    sqlstate = "SMC03"
    http_status = 200
    title = "quarantined"
    remedy = "`semel event list --verdict quarantined` shows what came and why it is unusable."


class SpoolUnfit(SemelError):
    """The database is away and the spool is full, or its disk fails. Nothing was kept."""

    code = "E-SPOOL-001"
    sqlstate = "SMK01"
    http_status = 503
    retryable = True
    title = "not spooled"
    remedy = (
        "`semel doctor` says what is wrong with the spool: its bound, its disk or its folder."
    )
