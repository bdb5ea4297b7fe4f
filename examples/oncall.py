"""
On call: look into what Alertmanager sent, ask a person, act, and undo it where that did not help.

    semel up examples/oncall.py

What it acts on is a file: a line for each thing that was done to a node, under the key of its step.
Of the nodes that an alert may name, node9 is beyond repair.
"""

import asyncio
import os
from pathlib import Path
from typing import Any

import semel
from semel import App, ApprovalRejected, Run

app = App()

#: How long it takes to look, and to restart; make it long, and kill the worker in the middle.
SECONDS = float(os.environ.get("ONCALL_SECONDS", "1"))
CLUSTER = Path(os.environ.get("SEMEL_HOME", ".semel"), "cluster.log")


@app.agent("triage", max_attempts=3)
async def triage(run: Run) -> dict[str, Any]:
    report: dict[str, Any] = await run.step("diagnose", diagnose, run.input)
    if not report["firing"]:
        return report
    node = report["node"]
    try:
        answer = await run.approval(f"restart {node}", action={"restart": node})
    except ApprovalRejected as rejected:
        return {**report, "left alone": str(rejected)}
    await run.step("drain", drain, node, undo=put_back)
    await run.step("restart", restart, node)
    async with run.transaction("record") as tx:  # our rows and the step commit together
        await tx.execute("create table if not exists restarts (run_id uuid, node text)")
        await tx.execute("insert into restarts values (%s, %s)", (run.id, node))
    await run.step("check", check, node)  # where it fails, the node is put back
    return {**report, "restarted": True, "approved by": answer["by"]}


async def diagnose(notification: dict[str, Any]) -> dict[str, Any]:
    await asyncio.sleep(SECONDS)  # a real one would read graphs and logs
    alerts = notification["alerts"]
    return {
        "title": ", ".join(sorted({alert["labels"]["alertname"] for alert in alerts})),
        "node": alerts[0]["labels"].get("instance", "?"),
        "firing": sum(alert["status"] == "firing" for alert in alerts),
    }


def drain(node: str) -> None:
    act(f"{node} drained")


@app.compensation("put back")
def put_back(node: str) -> None:
    act(f"{node} put back")


async def restart(node: str) -> None:
    act(f"{node} restarted")
    await asyncio.sleep(SECONDS)


def check(node: str) -> None:
    if node == "node9":
        raise semel.DoNotRetry(f"{node} is still down")


def act(what: str) -> None:
    """Do it, and once for each key: a step that is repeated after a crash has the same."""
    key = semel.idempotency_key()
    CLUSTER.parent.mkdir(exist_ok=True)
    CLUSTER.touch()
    if key not in CLUSTER.read_text():
        with CLUSTER.open("a") as cluster:
            cluster.write(f"{what}  {key}\n")
