"""Every request of the corpus, over real HTTP through `semel serve`, gets its verdict and answer."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

import captured
from captured import ENTRIES, Entry
from web import count

SERVE = Path(__file__).parent.parent / "programs" / "serve.py"


@pytest.fixture
def url(tmp_path: Path, dsn: str) -> Iterator[str]:
    text, secrets = captured.toml()
    (tmp_path / "semel.toml").write_text(text)
    ours = {"SEMEL_PORT": "0", "SEMEL_TESTING": "1", "SEMEL_DSN": dsn}
    with subprocess.Popen(
        [sys.executable, str(SERVE)],
        cwd=tmp_path,
        env={**os.environ, **ours, **secrets},
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stderr is not None
            told = [json.loads(process.stderr.readline())]
            while told[-1]["event"] != "database.reached":
                told.append(json.loads(process.stderr.readline()))
            yield f"http://127.0.0.1:{told[0]['port']}"
        finally:
            process.terminate()


def send(client: httpx.Client, entry: Entry, clock: float | None = None) -> httpx.Response:
    return client.request(
        entry["method"],
        f"/in/default/{captured.source_of(entry)}",
        content=entry["body"].encode(),
        headers=captured.headers_of(entry, clock),
    )


def verdicts(answer: httpx.Response) -> list[str]:
    return answer.headers["semel-verdict"].split(", ")


#: What is answered in the form that the provider asks for, whatever became of the event.
OWN_FORM = {"slack", "discord"}
PROBLEM = {401: "E-SOURCE-002", 422: "E-IDEMPOTENT-002"}


def events_told(entry: Entry, answer: httpx.Response) -> list[dict[str, Any]]:
    """What the answer says of each event; of no JSON, and of JSON in the provider's form, nothing."""
    if captured.channel_of(entry) in OWN_FORM or answer.is_error or not answer.content:
        return []
    told = answer.json()
    return list(told.get("events", [told]))


def check_events(conn: psycopg.Connection[Any], entry: Entry, answer: httpx.Response) -> None:
    """Each event of the answer is the row that is there, and says what became of it."""
    told = events_told(entry, answer)
    if answer.is_error:
        problem = answer.json()
        assert answer.headers["content-type"] == "application/problem+json"
        wanted = PROBLEM.get(answer.status_code, "E-IDEMPOTENT-006")
        assert captured.channel_of(entry) == "cloudevents" or problem["code"] == wanted
        assert problem["status"] == answer.status_code
    for each, verdict in zip(told, verdicts(answer), strict=bool(told)):
        if verdict in {"ignored", "quarantined"}:
            assert each.get("run_id") is None
            assert each.get("code") == ("E-SOURCE-003" if verdict == "quarantined" else None)
            continue
        [[run_id]] = conn.execute(
            "select run_id::text from semel.events where event_id = %s", (each["event_id"],)
        ).fetchall()
        assert each["run_id"] == run_id is not None
        assert each["duplicate"] is (verdict != "new")
        assert each.get("code") == (None if verdict == "new" else "E-IDEMPOTENT-001")


def check_answer(entry: Entry, answer: httpx.Response) -> None:
    assert not answer.has_redirect_location
    if answer.content and "json" in answer.headers["content-type"]:
        assert "method" not in answer.json()
    match entry["id"]:
        case "slack-05":
            assert answer.headers["content-type"].startswith("text/plain")
            assert answer.text == json.loads(entry["body"])["challenge"]
        case "slack-01" | "slack-02" | "slack-03":
            assert answer.content == b""
        case "discord-01":
            assert answer.json() == {"type": 1}
        case "discord-03":
            assert answer.json() == {"type": 5}
        case "cloudevents-09":
            assert answer.headers["webhook-allowed-origin"] == "eventemitter.example.com"
            assert answer.headers["webhook-allowed-rate"] == "120"
        case "gitea-03":
            assert verdicts(answer) == ["redelivery"]
            assert answer.json()["code"] == "E-IDEMPOTENT-001"
        case "line-01":
            assert len(answer.json()["events"]) == 2
        case _:
            pass


def test_every_request_of_the_corpus_gets_its_verdict_and_answer(
    url: str, conn: psycopg.Connection[Any]
) -> None:
    assert len(ENTRIES) == 38 + 45  # the 39th is what a redirect once made of a POST
    wrong = []
    with httpx.Client(base_url=url) as client:
        for entry in ENTRIES:
            before, runs = count(conn, "deliveries"), count(conn, "runs")
            answer = send(client, entry)
            fault = captured.fault_of(entry, answer.status_code, verdicts(answer))
            if fault is not None:
                wrong.append(fault)
                continue
            check_answer(entry, answer)
            check_events(conn, entry, answer)
            assert count(conn, "runs") - runs == captured.news_of(entry), entry["id"]
            if verdicts(answer) == ["refused"]:
                assert count(conn, "deliveries") == before
    assert not wrong, "\n".join(wrong)
    news = sum(captured.news_of(entry) for entry in ENTRIES)
    assert count(conn, "events") == count(conn, "runs") == news
    line = conn.execute("select provider_event_id from semel.events where source = 'line-1'")
    wanted = {name for entry in ENTRIES for name in entry.get("expect_new", ())}
    assert {name for [name] in line} == wanted


def test_a_vector_is_too_old_by_today_s_clock(url: str) -> None:
    with httpx.Client(base_url=url) as client:
        for entry in ENTRIES:
            if entry["verdict"] == "vector" and entry["channel"] in captured.VECTOR_CLOCKS:
                answer = send(client, entry, clock=float(entry["clock"]))
                assert (answer.status_code, verdicts(answer)) == (401, ["refused"])
