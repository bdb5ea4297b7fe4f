"""`semel token`: who may call the API. A token is shown once, when it is made."""

from typing import Annotated, Literal

import typer

from semel.config.settings import SOURCE
from semel.core import tokens
from semel.db.execute import run
from semel.errors import BadRequest
from semel.ops.cli.command import Desk, Id, command, group

token = group("Bearer tokens of the API.")


def _source(written: str) -> str:
    if not SOURCE.fullmatch(written):
        raise typer.BadParameter(
            f"{written[:80]!r} is no source: 1 to 64 of A-Z, a-z, 0-9, _, . and -"
        )
    return written


@command(token, "create")
def create(
    desk: Desk,
    role: Annotated[
        Literal["viewer", "producer", "operator", "approver", "admin"],
        typer.Option(help="What it allows."),
    ],
    source: Annotated[
        str | None,
        typer.Option(metavar="S", parser=_source, help="The source of the runs it starts."),
    ] = None,
    name: Annotated[str, typer.Option(metavar="N", help="Whose it is, for the list.")] = "",
) -> None:
    """Make a token, and show it: it cannot be shown again."""
    minted = tokens.mint()
    with desk.connection() as conn:
        token_id = run(
            conn, tokens.token_create(desk.project, minted, role, name=name, source=source)
        )
    desk.answer(
        {
            "token_id": token_id,
            "project_id": desk.project,
            "role": role,
            "source": source,
            "name": name,
            "token": minted,
        }
    )


@command(token, "list")
def list_(desk: Desk) -> None:
    """The project's tokens; never the tokens themselves."""
    with desk.connection() as conn:
        found = run(conn, tokens.token_list(desk.project))
    names = ("token_id", "role", "source", "name", "created_at", "revoked_at")
    items = [dict(zip(names, row, strict=True)) for row in found]
    desk.listing(
        items,
        names,
        f"no tokens in project {desk.project}: make one with `semel token create --role R`",
    )


@command(token, "revoke")
def revoke(desk: Desk, token_id: Id) -> None:
    """End what a token allows, at once."""
    with desk.connection() as conn:
        outcome = run(conn, tokens.token_revoke(desk.project, token_id))
    if outcome == "unknown":
        raise BadRequest(
            f"project {desk.project} has no token {token_id}:"
            " `semel token list` shows what there is"
        )
    desk.answer(
        {"token_id": token_id, "outcome": outcome},
        "revoked" if outcome == "won" else "was revoked before",
    )
