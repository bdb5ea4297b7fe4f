"""Every captured and constructed request gets its verdict: none is lost, none is doubled."""

from datetime import timedelta
from typing import Any

import psycopg

from semel.config import Source
from web import BASE, CORPUS, Web, count, secret, settings, verdict, web

DUPLICATES = {"duplicate", "reminder", "redelivery", "late"}


def replay(client: Web, entry: dict[str, Any], source: str, clock: float) -> str:
    headers = [
        (name, value)
        for name, value in entry["headers"]
        if name.lower() not in {"host", "content-length", "connection"}
    ]
    headers.append(("X-Semel-Test-Clock", str(clock)))
    answer = client.post(f"/in/default/{source}", entry["body"].encode(), headers)
    assert not answer.is_redirect
    assert "method" not in answer.json()
    return f"{answer.status_code} {verdict(answer)}"


def test_alertmanager_s_captured_traffic_loses_nothing_and_doubles_nothing(
    dsn: str, conn: psycopg.Connection[Any]
) -> None:
    entries = [each for each in CORPUS["captured_alertmanager"] if each["method"] == "POST"]

    def source_of(entry: dict[str, Any]) -> str:
        path = entry["path"].partition("?")[0].strip("/")
        return "am-redir" if path.startswith("am-redir") else str(path)

    sources = [
        Source(
            name=name,
            channel="alertmanager",
            agent="triage",
            resolved_grace=timedelta(seconds=5),
            run_on="firing+resolved",
        )
        for name in sorted({source_of(entry) for entry in entries})
    ]
    wrong = []
    with web(settings(dsn, *sources)) as client:
        for entry in entries:
            got = replay(client, entry, source_of(entry), BASE + entry["t_offset_s"])
            wanted = {"new": {"201 new"}, "duplicate": {f"200 {each}" for each in DUPLICATES}}
            if got not in wanted[entry["verdict"]]:
                wrong.append(f"{entry['id']}: {got}, not {entry['verdict']}: {entry['note']}")
    assert not wrong, "\n".join(wrong)
    new = sum(entry["verdict"] == "new" for entry in entries)
    assert count(conn, "events") == new
    assert count(conn, "runs") == new
    assert count(conn, "deliveries") == len(entries)


def test_a_resolution_makes_an_event_and_by_default_no_run(
    dsn: str, conn: psycopg.Connection[Any]
) -> None:
    entries = [e for e in CORPUS["captured_alertmanager"] if e["path"] == "/am"]
    source = Source(
        name="am", channel="alertmanager", agent="triage", resolved_grace=timedelta(seconds=5)
    )
    with web(settings(dsn, source)) as client:
        for entry in entries:
            replay(client, entry, "am", BASE + entry["t_offset_s"])
    new = [entry for entry in entries if entry["verdict"] == "new"]
    resolutions = sum(
        entry["scenario"].startswith(("S4", "S5 A resolved; ", "S6 A resolved"))
        or '"status":"resolved"' in entry["body"].partition('"labels"')[0]
        for entry in new
    )
    assert count(conn, "events") == len(new)
    assert count(conn, "runs") == len(new) - resolutions


def test_telegram_s_requests_get_their_verdicts(
    dsn: str, conn: psycopg.Connection[Any]
) -> None:
    entries = [each for each in CORPUS["constructed"] if each["channel"] == "telegram"]
    bots = [
        Source(name=name, channel="telegram", agent="chat", secrets=(secret("tok_AZaz09-_"),))
        for name in ("tg-bot-a", "tg-bot-b")
    ]
    wanted = {"new": "201 new", "duplicate": "200 duplicate", "reject": "401 refused"}
    with web(settings(dsn, *bots)) as client:
        for entry in entries:
            name = entry["path"].removeprefix("/in/")
            assert replay(client, entry, name, entry["clock"]) == wanted[entry["verdict"]]
    assert count(conn, "runs") == 2
    assert count(conn, "events") == 2
    assert count(conn, "deliveries", "verdict = 'refused'") == 0


def test_the_api_s_requests_get_their_verdicts(dsn: str, conn: psycopg.Connection[Any]) -> None:
    entries = [each for each in CORPUS["constructed"] if each["channel"] == "api"]
    source = Source(
        name="api-1",
        channel="api",
        agent="job",
        secrets=(secret("key_live_1"),),
        require_key=True,
    )
    wanted = {
        "new": "201 new",
        "duplicate": "200 duplicate",
        "conflict": "422 conflict",
        "reject": "400 refused",
    }
    with web(settings(dsn, source)) as client:
        for entry in entries:
            assert replay(client, entry, "api-1", entry["clock"]) == wanted[entry["verdict"]]
    assert count(conn, "runs") == 1
    assert count(conn, "events") == 1
