"""An agent that calls tools: of an MCP server, of this program, and another agent."""

from typing import Any

from semel import App, Run, ToolError

app = App()


@app.agent("refund")
async def refund(run: Run) -> dict[str, Any]:
    order = await run.tool("shop", "find_order", {"order": run.input["order"]})
    fee = await run.tool("app", "fee", {"cents": order["cents"]})
    try:
        said = await run.tool(
            "shop", "refund", {"order": order["order"], "cents": order["cents"] - fee}
        )
    except ToolError as error:
        said = str(error)
    letter = await run.tool("agents", "letter", said)
    return {"said": said, "letter": letter}


@app.tool("fee", idempotent=True)
def fee(cents: int) -> int:
    """A function of this program; it may be called again after a crash, since it only computes."""
    return cents // 20


@app.agent("letter")
async def letter(run: Run) -> str:
    return f"Dear customer, we have {run.input} cents."
