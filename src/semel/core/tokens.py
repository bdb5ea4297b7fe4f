"""
Tokens: mint, hash and look up the bearer tokens of the API.

A token is 256 random bits behind a readable prefix; the database sees only its SHA-256.
"""

from __future__ import annotations

import hashlib
import secrets
from typing import TYPE_CHECKING

from semel.core.call import Call
from semel.model import Grant

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from typing import Any
    from uuid import UUID

    from semel.model import Role

PREFIX = "semel_"


def mint() -> str:
    """A new token: `semel_` and 43 characters of URL-safe base64."""
    return PREFIX + secrets.token_urlsafe(32)


def digest(token: str) -> bytes:
    """What the database keeps of *token*: 32 bytes."""
    return hashlib.sha256(token.encode()).digest()


def token_create(
    project: str, token: str, role: Role, *, name: str = "", source: str | None = None
) -> Call[UUID]:
    """
    Keep the hash of *token* with what it allows; answers its id.

    Source: sql/functions/tokens.sql, token_create.
    """

    def read(rows: Sequence[Any]) -> UUID:
        found: UUID = rows[0][0]
        return found

    return Call(
        "select token_id from semel.token_create(%s, %s, %s, %s, %s)",
        (project, digest(token), role, name, source),
        read,
    )


def token_check(project: str, token: str) -> Call[Grant | None]:
    """
    What *token* allows in *project*; None for a stranger or a revoked one.

    Source: sql/functions/tokens.sql, token_check.
    """
    return Call(
        "select token_id, role, source from semel.token_check(%s, %s)",
        (project, digest(token)),
        lambda rows: (
            Grant(token_id=rows[0][0], role=rows[0][1], source=rows[0][2]) if rows else None
        ),
    )


def token_list(
    project: str,
) -> Call[list[tuple[UUID, str, str | None, str, datetime, datetime | None]]]:
    """
    The project's tokens, as (id, role, source, name, created, revoked); never the tokens.

    Source: sql/functions/tokens.sql, token_list.
    """
    return Call(
        "select token_id, role, source, name, created_at, revoked_at from semel.token_list(%s)",
        (project,),
        lambda rows: [tuple(row) for row in rows],
    )


def token_name(project: str, token_id: UUID) -> Call[str]:
    """
    What a token was called when it was made; empty for one without a name.

    Source: sql/functions/tokens.sql, token_list.
    """
    return Call(
        "select name from semel.token_list(%s) where token_id = %s",
        (project, token_id),
        lambda rows: str(rows[0][0]) if rows else "",
    )


def token_revoke(project: str, token_id: UUID) -> Call[str]:
    """
    Revoke a token; answers won, already or unknown.

    Source: sql/functions/tokens.sql, token_revoke.
    """
    return Call(
        "select outcome from semel.token_revoke(%s, %s)",
        (project, token_id),
        lambda rows: str(rows[0][0]),
    )
