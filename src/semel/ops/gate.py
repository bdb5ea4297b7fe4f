"""
The gate of the API: who asks, and whether that role may.

A token belongs to one project and one role. Nothing here opens a project to a token of another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from semel.config.settings import PROJECT
from semel.core.tokens import token_check, token_name
from semel.edges.in_time import ANSWER_SECONDS_MAX
from semel.errors import Forbidden, Unauthenticated

if TYPE_CHECKING:
    from starlette.requests import Request

    from semel.edges.asker import Asker
    from semel.model import Grant, Role

READERS: frozenset[Role] = frozenset({"viewer", "operator", "approver", "admin"})
STARTERS: frozenset[Role] = frozenset({"producer", "operator", "admin"})
OPERATORS: frozenset[Role] = frozenset({"operator", "admin"})
APPROVERS: frozenset[Role] = frozenset({"approver", "admin"})

TOKEN_CHARS_MAX = 500


class Gate:
    """Checks the tokens of requests."""

    def __init__(self, asker: Asker) -> None:
        self._asker = asker

    async def grant(
        self, request: Request, allowed: frozenset[Role], *, within: float = ANSWER_SECONDS_MAX
    ) -> Grant:
        """
        What the request's token allows.

        Raises:
            Unauthenticated: it brings none of this project.
            Forbidden: its role is not one of *allowed*.
        """
        told = token(request)
        project = request.path_params["project"]
        grant = None
        if told and PROJECT.fullmatch(project):
            call = token_check(project, told[:TOKEN_CHARS_MAX])
            grant = await self._asker.ask(call, within=within)
        if grant is None:
            raise Unauthenticated(f"no token of project {project[:80]!r} came with the request")
        if grant.role not in allowed:
            raise Forbidden(f"the role {grant.role} does not allow {request.method} here")
        return grant

    async def who(self, request: Request, grant: Grant) -> str:
        """Whom the token stands for: its name, or its id where it has none."""
        call = token_name(request.path_params["project"], grant.token_id)
        return await self._asker.ask(call) or str(grant.token_id)


def token(request: Request) -> str:
    """What stands behind the one `Authorization: Bearer`; empty if nothing does."""
    lines = request.headers.getlist("authorization")
    scheme, _, told = (lines[0] if len(lines) == 1 else "").strip().partition(" ")
    return told.strip() if scheme.lower() == "bearer" else ""
