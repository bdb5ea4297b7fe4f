"""A program with schedules."""

from semel import App, Run

app = App("scheduled")


@app.schedule("often", every="1s", jitter="10ms")
@app.agent("report")
async def report(run: Run) -> str:
    return str(run.input["schedule"]["scheduled_at"])


app.schedule("nightly", cron="0 3 * * *", timezone="Asia/Taipei", agent="report")
