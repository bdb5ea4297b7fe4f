"""
Spools: how far a drain has come, and which ingresses have a spool.

One function here per function in sql/functions/spool.sql: same name, same arguments. Files are
read and written elsewhere; nothing here opens one, or a connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from semel.core.call import Call, nothing

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta
    from uuid import UUID


def spool_advance(project: str, source: str, segment: UUID, begin: int, end: int) -> Call[int]:
    """
    Move *segment* from record *begin* to *end* in the transaction that accepts what is between.

    Answers where it stands then; not at *end*: nothing was moved, and nothing may be accepted.

    Source: sql/functions/spool.sql, spool_advance.
    """
    return Call(
        "select semel.spool_advance(%s, %s, %s, %s, %s)",
        (project, source, segment, begin, end),
        lambda rows: int(rows[0][0]),
    )


def spool_position(project: str, segment: UUID) -> Call[int]:
    """
    Up to which record *segment* is accepted; 0 for none.

    Source: sql/functions/spool.sql, spool_position.
    """
    return Call(
        "select semel.spool_position(%s, %s)", (project, segment), lambda rows: int(rows[0][0])
    )


def spool_forget(project: str, segment: UUID) -> Call[None]:
    """
    Forget *segment*, whose file is removed.

    Source: sql/functions/spool.sql, spool_forget.
    """
    return Call("select semel.spool_forget(%s, %s)", (project, segment), nothing)


def spool_announce(project: str, spool: UUID, place: str, sources: Sequence[str]) -> Call[None]:
    """
    Tell that the spool at *place* serves *sources*, for the view `spools`.

    Source: sql/functions/spool.sql, spool_announce.
    """
    return Call(
        "select semel.spool_announce(%s, %s, %s, %s::text[])",
        (project, spool, place, list(sources)),
        nothing,
    )


def rival_spools(within: timedelta) -> Call[list[tuple[str, str, list[str]]]]:
    """Sources that several spools serve, as (project, source, places), of those seen *within*."""
    return Call(
        "select project_id, source, array_agg(place order by place) from semel.spools"
        " where seen_at > clock_timestamp() - %s group by 1, 2 having count(*) > 1 order by 1, 2",
        (within,),
        lambda rows: [(row[0], row[1], list(row[2])) for row in rows],
    )
