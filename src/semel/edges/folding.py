"""
Folding: an Alertmanager notification as calls on one connection, in the order its alerts demand.

Whoever has the connection has the transaction: the acceptor of one notification, or the drain of a
spool. Nothing here begins or commits one, but for a look that is rolled back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from semel.core import inbox
from semel.db.execute import arun
from semel.edges.channel import REASON_CHARS_MAX
from semel.model import Offer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    import psycopg

    from semel.config import Source
    from semel.core.call import Call
    from semel.edges.channel import Notification
    from semel.model import Accepted, Alert


@dataclass(frozen=True, slots=True, kw_only=True)
class Folding:
    """One notification to *source*, with the bytes it came as; *now* as for `alert_accept`."""

    source: Source
    notification: Notification
    body: bytes
    headers: Mapping[str, str]
    now: datetime | None = None

    def fold(self, alerts: Sequence[Alert]) -> Call[list[Accepted]]:
        """What folds *alerts*, of each fingerprint one."""
        return inbox.alert_accept(
            self.source.project,
            self.source.name,
            self.source.agent,
            self.notification.envelope,
            alerts,
            body=self.body,
            headers=self.headers,
            grace=self.source.resolved_grace,
            run_on=self.source.run_on,
            unit=self.source.unit,
            priority=self.source.priority,
            reminder=self.source.reminder,
            patient=False,
            now=self.now,
        )

    def rest(self) -> list[Call[list[Accepted]]]:
        """What keeps the delivery once more, as quarantined, where an alert is unusable."""
        if not self.notification.unusable:
            return []
        offer = Offer(
            source=self.source.name,
            channel=self.source.channel,
            body=self.body,
            headers=dict(self.headers),
            verdict="quarantined",
            reason=self.notification.unusable[:REASON_CHARS_MAX],
        )
        return [inbox.event_accept(self.source.project, [offer], patient=False, now=self.now)]

    async def on(self, conn: psycopg.AsyncConnection[Any]) -> list[Accepted]:
        """Fold all of it in the transaction that *conn* is in."""
        first, then = in_order(self.notification.alerts)
        if then:
            # Had it come before, the earlier states would be news again once they are folded.
            async with conn.transaction(force_rollback=True):
                known = await arun(conn, self.fold(then))
            if all(one.verdict != "new" for one in known):
                last = {alert.fingerprint for alert in then}
                first = [*(a for a in first if a.fingerprint not in last), *then]
                then = []
        accepted: list[Accepted] = []
        for call in (self.fold(first), *([self.fold(then)] if then else []), *self.rest()):
            accepted += await arun(conn, call)
        return accepted


def in_order(alerts: Sequence[Alert]) -> tuple[list[Alert], list[Alert]]:
    """
    *alerts* as they are to be folded: one of each fingerprint, then what is later.

    An alert fires before it is resolved, unless it fires anew after its end.
    """
    first: dict[str, Alert] = {}
    then = []
    for alert in sorted(alerts, key=lambda one: one.status):
        other = first.setdefault(alert.fingerprint, alert)
        if other is alert:
            continue
        is_anew = other.starts_ns > max(alert.starts_ns, alert.ends_ns)
        if is_anew:
            first[alert.fingerprint] = alert
        then.append(other if is_anew else alert)
    return list(first.values()), then
