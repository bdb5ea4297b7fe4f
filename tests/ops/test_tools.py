"""Tools where an operator looks: the settings, the doctor, the metrics, and a run's story."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fix_world import Conn, one
from rude import McpManners, rude
from semel import App, Run
from semel.config import Settings, ToolServer, load
from semel.core.story import show_run
from semel.db.execute import run
from semel.errors import BadConfig
from semel.ops.cli.timeline import of_run
from semel.ops.doctor import examine
from semel.testing import World
from web import settings, web

app = App()


@app.agent("asks")
async def asks(run: Run) -> Any:
    return await run.tool("cluster", run.input, {"ns": "web"})


def play(dsn: str, *tools: str) -> list[Any]:
    """Runs that each call one of the tools."""

    async def go() -> list[Any]:
        stubs = {"cluster": {"pods": lambda ns: [f"{ns}-1"], "sour": lambda ns: 1 / 0}}
        async with World(app, dsn, tools=stubs, project="p") as here:
            runs = [await here.start("asks", tool) for tool in tools]
            await here.drain()
            return runs

    return asyncio.run(go())


def test_the_story_of_a_run_has_its_calls_and_theirs_have_what_was_sent(
    dsn: str, conn: Conn
) -> None:
    [good, bad] = play(dsn, "pods", "sour")
    shown = run(conn, show_run("p", good))
    assert shown
    tools: Any = shown["tools"]
    [tool] = tools
    want = {
        "server": "cluster",
        "tool": "pods",
        "state": "ANSWERED",
        "arguments": {"ns": "web"},
    }
    assert want.items() <= tool.items()
    told = of_run(shown)
    for words in (
        "tool      cluster.pods: asked by run",
        "tool      cluster.pods: sent once, key",
        "tool      cluster.pods: ANSWERED by call",
        'step      cluster.pods (tool): answered ["web-1"]',
    ):
        assert words in told
    assert "child     " not in told
    call = one(conn, "select call_id from semel.tools where run_id = %s", good)
    shown = run(conn, show_run("p", call))
    assert shown
    assert "call (tool): sends cluster.pods, time 1; it is not repeated" in of_run(shown)
    shown = run(conn, show_run("p", bad))
    assert shown
    assert "no result: " in of_run(shown)
    assert "cluster.sour: FAILED by call" in of_run(shown)


def test_what_goes_on_and_what_ended_is_measured(dsn: str, conn: Conn) -> None:
    with web(settings(dsn)) as client:
        client.send("GET", "/metrics")
        play(dsn, "pods", "sour")
        # A world's clock stands still, in another year.
        conn.execute(
            "update semel.tool set answered_at = clock_timestamp(), asked_at = clock_timestamp()"
        )
        conn.execute(
            "insert into semel.tool (project_id, run_id, step_key, call_id, server, tool, tool_key, asked_at)"
            " values ('p', gen_random_uuid(), 'x', gen_random_uuid(), 'bill', 'x', 'k', clock_timestamp())"
        )
        client.run(asyncio.sleep(0))
        from semel.ops import metrics

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(metrics, "CACHE_SECONDS", 0.0)
            text = client.send("GET", "/metrics").text
    for line in (
        'semel_tool_calls_open{server="bill",state="ASKED"} 1.0',
        'semel_tool_calls_total{outcome="ANSWERED",server="cluster"} 1.0',
        'semel_tool_calls_total{outcome="FAILED",server="cluster"} 1.0',
        'semel_tool_seconds_count{server="cluster"} 2.0',
    ):
        assert line in text


def lines(dsn: str, *servers: ToolServer, ask: bool = True) -> dict[str, Any]:
    told = replace(Settings(dsn=dsn), tools={server.name: server for server in servers})
    return {check.name: check for check in examine(told, tools=ask)}


def test_the_doctor_asks_the_servers_when_it_is_asked_to(
    dsn: str, conn: Conn, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = ToolServer(name="away", url="http://127.0.0.1:1/mcp")
    bill = ToolServer(name="bill", http="http://127.0.0.1:1/", routes={"x": "GET /"})
    none = ToolServer(name="none", command="/nonexistent")
    secret = ToolServer(name="secret", url="http://127.0.0.1:1/mcp", token="env:NOT_THERE")
    found = lines(dsn, away, bill, none, secret)
    assert {"FAIL"} == {
        found[f"tools {name}"].status for name in ("away", "bill", "none", "secret")
    }
    assert "set the variable NOT_THERE" in found["tools secret"].detail
    assert "ok" == lines(dsn, away, ask=False)["tools away"].status

    async def met() -> dict[str, Any]:
        async with rude(McpManners()) as origin:
            server = ToolServer(name="rude", url=f"{origin}/mcp")
            return await asyncio.to_thread(lines, dsn, server)

    assert "answers" in asyncio.run(met())["tools rude"].detail
    assert "ok" == found["tools"].status
    play(dsn, "pods")
    conn.execute("update semel.tool set state = 'UNKNOWN', answered_at = clock_timestamp()")
    assert "1 ended with an unknown outcome" in lines(dsn)["tools"].detail


def test_servers_are_read_and_shown_without_their_secrets(tmp_path: Path) -> None:
    toml = """
        [tools.cluster]
        url = "https://mcp.example.com/mcp?key=abc"
        token = "env:T"
        headers = { X-Team = "ops" }
        honours_key = ["restart"]
        timeout = "2m"
        [tools.local]
        command = "python"
        args = ["server.py"]
        env = { API_KEY = "env:K" }
        honours_key = true
    """
    (tmp_path / "semel.toml").write_text(toml)
    told = load({}, tmp_path)
    assert [True, False, True] == [
        told.tools["cluster"].honours("restart"),
        told.tools["cluster"].honours("x"),
        told.tools["local"].honours("x"),
    ]
    shown = json.dumps(told.shown()["tools"])
    assert "abc" not in shown
    assert {"https://mcp.example.com", "env:T", "python"} <= set(
        shown.replace(",", "").split('"')
    )
    assert {"Authorization": "Bearer t0p", "X-Team": "ops"} == told.tools["cluster"].sent(
        {"T": "t0p"}
    )


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ("", "has no url: say one of"),
        ('url = "http://h/"\ncommand = "x"', "has url and command"),
        ('url = "ftp://h/"', "no web address"),
        ('command = " "', "command is empty"),
        ('command = "x"\ntoken = "env:T"', "token is no setting beside command"),
        ('url = "http://h/"\ntoken = "abc"', "a secret, written out"),
        ('url = "http://h/"\nheaders = { Authorization = "x" }', "a secret, written out"),
        ('url = "http://h/"\nheaders = { "a b" = "x" }', "no header"),
        ('url = "http://h/"\nheaders = ["x"]', "write names and texts"),
        ('command = "x"\nenv = { DB_PASSWORD = "x" }', "a secret, written out"),
        ('http = "http://h/"', "has no routes"),
        ('http = "http://h/"\nroutes = { x = "FETCH /" }', 'write it as in "POST /refunds"'),
        ('url = "http://h/"\ntimeout = "1"', "a number with its unit"),
        ('url = "http://h/"\ntimeout = "0s"', "timeout is 0"),
        ('url = "http://h/"\nattempts = 0', "attempts is 0"),
        ('url = "http://h/"\nhonours_key = "x"', "write true or false"),
        ('url = "http://h/"\nhonour_key = true', "did you mean 'honours_key'"),
    ],
)
def test_what_is_no_server_is_refused_with_the_mend(
    tmp_path: Path, settings: str, words: str
) -> None:
    (tmp_path / "semel.toml").write_text(f"[tools.x]\n{settings}\n")
    with pytest.raises(BadConfig) as refused:
        load({}, tmp_path)
    assert words in str(refused.value)
    assert "[tools.x]" in str(refused.value)


@pytest.mark.parametrize("name", ["app", "agents"])
def test_semels_own_names_are_no_servers(tmp_path: Path, name: str) -> None:
    (tmp_path / "semel.toml").write_text(f'[tools.{name}]\nurl = "http://h/"\n')
    with pytest.raises(BadConfig, match="Semel's own"):
        load({}, tmp_path)
