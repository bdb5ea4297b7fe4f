"""
On call: read what Alertmanager sent, look into it, report.

    semel up examples/oncall.py
"""

import asyncio
import os
from typing import Any

from semel import App, Run

app = App()

#: How long looking into it takes; make it long, and kill the worker in the middle.
SECONDS = float(os.environ.get("ONCALL_SECONDS", "1"))


@app.agent("triage", max_attempts=3)
async def triage(run: Run) -> dict[str, Any]:
    notification: Any = run.input
    alerts = notification["alerts"]
    for alert in alerts:
        run.log("looking", alertname=alert["labels"]["alertname"], status=alert["status"])
    await asyncio.sleep(SECONDS)  # a real one would read graphs and logs
    return {
        "title": ", ".join(sorted({alert["labels"]["alertname"] for alert in alerts})),
        "where": sorted({alert["labels"].get("instance", "?") for alert in alerts}),
        "firing": sum(alert["status"] == "firing" for alert in alerts),
        "attempt": run.attempt,
    }
