"""What a source of Alertmanager may be told, what is refused, and where it shows."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from semel.config import ReconcileSettings, Source, load
from semel.core import alert_polls, inbox, upkeep
from semel.db.execute import run
from semel.errors import BadConfig
from semel.model import Alert
from semel.ops.doctor import examine
from web import count, settings, verdict, web

Conn = psycopg.Connection[Any]
ALERT = {
    "status": "firing",
    "labels": {"alertname": "A"},
    "startsAt": "2026-11-30T10:44:45Z",
    "endsAt": "0001-01-01T00:00:00Z",
    "fingerprint": "f",
}


def read(folder: Path, *lines: str) -> Source:
    told = '[sources.am]\nchannel = "alertmanager"\nagent = "a"\nauthenticate = "none"\n'
    (folder / "semel.toml").write_text(told + "\n".join(lines))
    return load({"AM_AUTH": "Bearer s3cret", "AM_BAD": "s3cret"}, folder).sources[
        "default", "am"
    ]


def test_a_poll_is_a_url_or_a_table(tmp_path: Path) -> None:
    short = read(tmp_path, 'reconcile = "https://am.example.com:9093/prefix"').reconcile
    assert short == ReconcileSettings(source="am", url="https://am.example.com:9093/prefix")
    assert short.at.at("/api/v2/status").target == "/prefix/api/v2/status"
    long = read(
        tmp_path,
        "[sources.am.reconcile]",
        'url = "http://am:9093"\nreceiver = "semel"\nevery = "30s"\nsettle = "1m"',
        'gone_after = "1h"\nauthorization = "env:AM_AUTH"',
    ).reconcile
    assert long is not None
    assert (long.receiver, long.every, long.header) == (
        "semel", timedelta(seconds=30), "Bearer s3cret",
    )  # fmt: skip
    shown = json.dumps(load({"AM_AUTH": "Bearer s3cret"}, tmp_path).shown())
    assert "env:AM_AUTH" in shown
    assert "s3cret" not in shown


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("reconcile = 5", "it is a table"),
        ("reconcile = {}", "has no url"),
        ('reconcile = "am:9093"', "no web address"),
        ('reconcile = "http://u:p@am"', "user or password"),
        ('reconcile = "http://am/?x=1"', "has a ?"),
        ('reconcile = { url = "http://am", every = "0s" }', "every is 0s"),
        ('reconcile = { url = "http://am", evry = "1m" }', "did you mean 'every'"),
        ('reconcile = { url = "http://am", receiver = "" }', "receiver is empty"),
        ('reconcile = { url = "http://am", authorization = "Bearer x" }', "written out"),
        ('reconcile = { url = "http://am", authorization = "env:NO" }', "set the variable NO"),
        ('reconcile = { url = "http://am", authorization = "env:AM_BAD" }', "Bearer TOKEN"),
        ('reminder = "often"', "reminder is 'often'"),
        ('reminder = "1s"', "reminder is 1s"),
        ('stale_after = "1m"', "stale_after is 1m"),
    ],
)
def test_what_cannot_be_is_refused_with_the_mend(tmp_path: Path, line: str, said: str) -> None:
    with pytest.raises(BadConfig, match=r"sources\.am") as refused:
        read(tmp_path, line)
    assert said in str(refused.value)
    assert "s3cret" not in str(refused.value)


def test_reminders_are_counted_unless_a_time_is_said(tmp_path: Path) -> None:
    assert read(tmp_path).reminder is None
    assert read(tmp_path, 'reminder = "count"').reminder is None
    assert read(tmp_path, 'reminder = "1d"').reminder == timedelta(days=1)


def test_the_settings_of_alertmanager_are_no_other_channels(tmp_path: Path) -> None:
    for line in ('reminder = "1d"', 'stale_after = "1d"', 'reconcile = "http://am"'):
        told = f'[sources.x]\nchannel = "api"\nagent = "a"\nauthenticate = "none"\n{line}'
        (tmp_path / "semel.toml").write_text(told)
        with pytest.raises(BadConfig, match="is a setting of channel alertmanager"):
            load({}, tmp_path)


def test_a_payload_of_ones_own_is_folded_where_it_keeps_what_an_alert_is(
    dsn: str, conn: Conn
) -> None:
    source = Source(name="am", channel="alertmanager", agent="a")
    with web(settings(dsn, source)) as client:
        told = {"team": "ops", "alerts": [{**ALERT, "severity": "page"}]}
        assert verdict(client.post("/in/default/am", told)) == "new"
        assert verdict(client.post("/in/default/am", told)) == "duplicate"
        for other in ({"text": "A fires"}, {"embeds": [{"title": "A"}]}):
            answer = client.post("/in/default/am", other)
            assert (answer.status_code, verdict(answer)) == (200, "quarantined")
            assert "a payload of its own, which must keep alerts" in answer.json()["reason"]
    assert count(conn, "runs") == count(conn, "events") == 1


def test_a_cut_list_is_counted_and_said(dsn: str, conn: Conn) -> None:
    source = Source(name="cut", channel="alertmanager", agent="a")
    with web(settings(dsn, source)) as client:
        client.post("/in/default/cut", {"alerts": [ALERT], "truncatedAlerts": 2})
        client.post("/in/default/cut", {"alerts": [ALERT], "truncatedAlerts": 0})
        shown = client.get("/metrics").text
    assert 'semel_alerts_truncated_total{source="cut"} 1.0' in shown
    assert 'semel_alerts{source="cut",state="firing"} 1.0' in shown
    reasons = conn.execute(
        "select reason from semel.deliveries order by delivery_id"
    ).fetchall()
    assert ["max_alerts to 0" in reason for (reason,) in reasons] == [True, False]


def lines(dsn: str, *sources: Source) -> list[str]:
    found = examine(settings(dsn, *sources))
    return [f"{one.status} {one.detail}" for one in found if one.name == "source am"]


def test_the_doctor_says_how_a_poll_does(dsn: str, conn: Conn) -> None:
    poll = ReconcileSettings(source="am", url="http://am:9093")
    source = Source(name="am", channel="alertmanager", agent="a", reconcile=poll)
    holder = uuid4()
    assert ["FAIL nobody has polled http://am:9093 yet"] == lines(dsn, source)
    take = alert_polls.alert_poll_take("default", "am", holder, timedelta(minutes=1))
    run(conn, take)
    report = alert_polls.alert_poll_report
    run(conn, report("default", "am", holder, "http://am:9093 answers 500"))
    assert ["FAIL poll: http://am:9093 answers 500"] == lines(dsn, source)
    run(conn, report("default", "am", holder, None, firing=3, found=2, ended=1))
    [said] = lines(dsn, source)
    assert said.startswith("ok http://am:9093 was polled 0 s ago, 3 fire there")
    conn.execute("update semel.alert_poll set polled_at = polled_at - interval '5 minutes'")
    assert ["FAIL http://am:9093 was not polled for 300 s"] == lines(dsn, source)


def test_the_doctor_says_whose_alerts_went_stale(dsn: str, conn: Conn) -> None:
    alert = Alert(fingerprint="f", status="firing", starts_ns=1, ends_ns=0, alert={})
    told = inbox.alert_accept("default", "am", "a", {}, [alert], body=b"", headers={})
    run(conn, told)
    assert [] == lines(dsn)
    assert 1 == run(conn, upkeep.fold_stale("default", timedelta(0)))
    [said] = lines(dsn)
    assert said.startswith("note 1 alerts were open until nobody had spoken of them")
