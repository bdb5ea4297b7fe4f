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
            before = count(conn, "deliveries")
            answer = send(client, entry)
            fault = captured.fault_of(entry, answer.status_code, verdicts(answer))
            if fault is not None:
                wrong.append(fault)
                continue
            check_answer(entry, answer)
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
