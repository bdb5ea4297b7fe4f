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


class Quarantined(SemelError):
    """Authentic, but unusable: kept raw, shown to the operator, and made no run."""

    code = "E-SOURCE-003"
    sqlstate = "SMC03"
    http_status = 200
    title = "quarantined"
    remedy = "`semel event list --verdict quarantined` shows what came and why it is unusable."
