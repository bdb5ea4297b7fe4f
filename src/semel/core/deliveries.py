"""
Deliveries: one arrival with its raw bytes, and its replay.

One function here per function in sql/functions/deliveries.sql: same name, same arguments. What
the bytes mean is read elsewhere; nothing here opens a connection or reads a clock.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from semel.core.call import Call, nothing
from semel.core.inbox import MEMORY, offered
from semel.core.text import dump
from semel.model import Accepted

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime, timedelta
    from uuid import UUID

    from semel.model import Offer


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One arrival, as it is kept."""

    project: str
    delivery_id: UUID
    received_at: datetime
    source: str
    channel: str
    verdict: str
    reason: str
    provider_event_id: str | None
    event_id: UUID | None
    run_id: UUID | None
    headers: dict[str, str]  # without secrets
    body: bytes | None  # None: purged
    known: bool  # it had an identity when it came, so an event was accepted of it


def delivery_read(project: str, told: UUID) -> Call[Delivery | None]:
    """
    The delivery with id *told*, or the one that made the event *told*; None if there is none.

    Source: sql/functions/deliveries.sql, delivery_read.
    """

    def read(rows: Sequence[Any]) -> Delivery | None:
        if not rows:
            return None
        row = rows[0]
        return Delivery(
            project=project,
            delivery_id=row[0],
            received_at=row[1],
            source=row[2],
            channel=row[3],
            verdict=row[4],
            reason=row[5],
            provider_event_id=row[6],
            event_id=row[7],
            run_id=row[8],
            headers=json.loads(row[9]),
            body=None if row[10] is None else bytes(row[10]),
            known=row[11],
        )

    return Call(
        "select delivery_id, received_at, source, channel_type, verdict, reason,"
        " provider_event_id, event_id, run_id, headers, content, known"
        " from semel.delivery_read(%s, %s)",
        (project, told),
        read,
    )


def event_replay(
    delivery: Delivery,
    offer: Offer,
    *,
    memory: timedelta = MEMORY,
    now: datetime | None = None,
) -> Call[Accepted | None]:
    """
    Accept *offer*, read from *delivery*, as a new event that is linked to the first.

    Its id is `replay:<delivery>:<n>`. Each call makes one; None when the bytes are purged.

    Source: sql/functions/deliveries.sql, event_replay.
    """
    return Call(
        "select verdict, event_id, run_id, reason from semel.event_replay(%s, %s, %s, %s, %s, %s)",
        (
            delivery.project,
            delivery.received_at,
            delivery.delivery_id,
            dump(offered(offer)),
            memory,
            now,
        ),
        lambda rows: (
            Accepted(
                verdict=rows[0][0], event_id=rows[0][1], run_id=rows[0][2], reason=rows[0][3]
            )
            if rows
            else None
        ),
    )


def delivery_settle(delivery: Delivery, accepted: Accepted) -> Call[None]:
    """
    Tell *delivery*, which had no identity, the event and run that its replay became.

    Source: sql/functions/deliveries.sql, delivery_settle.
    """
    return Call(
        "select semel.delivery_settle(%s, %s, %s, %s, %s)",
        (
            delivery.project,
            delivery.received_at,
            delivery.delivery_id,
            accepted.event_id,
            accepted.run_id,
        ),
        nothing,
    )
