"""
Alertmanager: a webhook receiver, schema version 4 and whatever later versions add to it.

Alertmanager has no id of a delivery and no signature. It repeats itself in retries, HA copies,
reminders and grown groups, so neither its bytes nor its group key say whether something
happened: the notification is handed on whole, and the fold in SQL finds what it changes. What
gets no 2xx is sent again at each group interval for ever, so what is unusable is kept and
answered 200.

Source: prometheus/alertmanager, notify/webhook and template.Data; RFC 3339.
"""

from __future__ import annotations

import base64
import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Literal

from semel.core.text import load_object
from semel.edges.channel import Notification, admit, bearer, only, quarantined
from semel.errors import BadRequest
from semel.model import Alert

if TYPE_CHECKING:
    from semel.config import Source
    from semel.edges.channel import Reading, Request
    from semel.model import Json

#: Alertmanager's own has 16; the database's index would refuse one of thousands.
FINGERPRINT_CHARS_MAX = 128

_TIME = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt ](\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?"
    r"(?:[Zz]|([+-])(\d\d):(\d\d))",
    re.ASCII,
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NS_LIMIT = 2**63


def read(request: Request, source: Source) -> Reading:
    """One notification: the envelope, and every alert in it."""
    admit(request, source, _given)
    try:
        envelope = load_object(request.body)
        alerts = _alerts(envelope.pop("alerts", None))
    except BadRequest as bad:
        return quarantined(request, source, str(bad))
    return Notification(envelope=envelope, alerts=alerts)


def _given(request: Request) -> list[bytes]:
    """Bearer credentials; of Basic ones the password, or the whole user:password."""
    scheme, _, rest = only(request, "authorization").strip().partition(b" ")
    if scheme.lower() != b"basic":
        return bearer(request)
    try:
        whole = base64.b64decode(rest.strip(), validate=True)
    except ValueError:
        return []
    user, colon, password = whole.partition(b":")  # a user has no colon, a password may
    return [password, user + colon + password] if colon else []


def _alerts(alerts: Json) -> list[Alert]:
    if not isinstance(alerts, list) or not alerts:
        raise BadRequest("alerts is missing, no list, or empty")
    return [_alert(n, alert) for n, alert in enumerate(alerts)]


def _alert(n: int, alert: Json) -> Alert:
    if not isinstance(alert, dict):
        raise BadRequest(f"alerts[{n}] is no object")
    fingerprint = alert.get("fingerprint")
    if not isinstance(fingerprint, str) or not 0 < len(fingerprint) <= FINGERPRINT_CHARS_MAX:
        raise BadRequest(f"alerts[{n}].fingerprint is missing, empty, too long or no text")
    status = _status(n, alert.get("status"))
    ends = alert.get("endsAt")
    return Alert(
        fingerprint=fingerprint,
        status=status,
        starts_ns=_nanoseconds(f"alerts[{n}].startsAt", alert.get("startsAt")),
        ends_ns=0 if status == "firing" else _nanoseconds(f"alerts[{n}].endsAt", ends),
        alert=alert,
    )


def _status(n: int, status: Json) -> Literal["firing", "resolved"]:
    match status:
        case "firing":
            return "firing"
        case "resolved":
            return "resolved"
        case _:
            raise BadRequest(f"alerts[{n}].status is neither firing nor resolved")


def _nanoseconds(name: str, text: Json) -> int:
    """An RFC 3339 time as unix nanoseconds; Go's zero time, in the year 1, is 0."""
    found = _TIME.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise BadRequest(f"{name} is no RFC 3339 time")
    *numbers, fraction, sign, hours, minutes = found.groups()
    year, month, day, hour, minute, second = map(int, numbers)
    if year == 1:
        return 0
    try:
        at = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError:
        raise BadRequest(f"{name} is no date") from None
    since = at - _EPOCH
    if sign:
        offset = timedelta(hours=int(hours), minutes=int(minutes))
        since += offset if sign == "-" else -offset
    whole = since // timedelta(seconds=1)
    ns = whole * 1_000_000_000 + int((fraction or "0").ljust(9, "0"))
    if not -_NS_LIMIT < ns < _NS_LIMIT:
        raise BadRequest(f"{name} is out of range")
    return ns
