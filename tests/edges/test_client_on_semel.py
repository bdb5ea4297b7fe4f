"""The client and Semel's own server: a lost answer starts nothing twice."""

from pathlib import Path
from uuid import uuid4

import psycopg
import pytest

from dropper import dropper
from fix_world import Conn
from rest_servers import asgi
from semel import errors
from semel.client import Client, FileKeys, Patience, tried
from semel.core import tokens
from semel.db.execute import run
from semel.ops.server import application
from web import count, settings

RUNS = "/v1/default/runs"


@pytest.fixture
def bearer(conn: psycopg.Connection[object]) -> dict[str, str]:
    token = f"token-{uuid4()}"
    run(conn, tokens.token_create("default", token, "producer"))
    conn.commit()
    return {"Authorization": f"Bearer {token}"}


def test_an_action_starts_one_run_over_lost_answers_and_restarts(
    dsn: str, conn: Conn, tmp_path: Path, bearer: dict[str, str]
) -> None:
    app = application(settings(dsn))
    with asgi(app, "on") as server, dropper(int(server.base.rpartition(":")[2])) as way:

        def start(told: int) -> tuple[str, int]:
            """What a process of the user does, from its start to its end."""
            with Client(
                base_url=way.url,
                headers=bearer,
                keys=FileKeys(tmp_path / "keys"),
                patience=Patience(first=0.01),
                trust_env=False,
            ) as client:
                report = client.action("report", "17")
                answer = report.post(RUNS, json={"agent": "a", "input": told})
                return answer.json()["run_id"], tried(answer).tries

        way.lose(2)
        run_id, tries = start(1)
        assert tries == 3
        assert start(1) == (run_id, 1)
        with pytest.raises(errors.KeyConflict):
            start(2)
    assert count(conn, "runs") == 1
