"""
The schema: tables once and in order, functions and views whole whenever a file changed.

One transaction under one advisory lock applies all of it or nothing, so twenty installers at once
do the work of one. There is no way back: restore a backup instead. A released table file is
never edited (its checksum is kept and compared), and a released function keeps its signature.
"""

from __future__ import annotations

import contextlib
import hashlib
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING, Any, Literal

from psycopg.errors import LockNotAvailable

from semel.errors import SchemaMismatch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import LiteralString

    import psycopg

Kind = Literal["tables", "functions", "views"]
KINDS: tuple[Kind, ...] = ("tables", "functions", "views")

#: Our key among the advisory locks of a database: "semel" in ASCII.
LOCK_KEY = 0x73656D656C  # 495622907244, as _PRELUDE takes it

# Tables and functions belong to semel_owner, so that a SECURITY DEFINER function is no superuser's
# even where one migrates. Where the migrating role may not create roles, it owns them itself.
_PRELUDE: LiteralString = """
select pg_advisory_xact_lock(495622907244);
set local lock_timeout = '10s';
set local check_function_bodies = off;
set local client_min_messages = warning;
set local citus.multi_shard_modify_mode to 'sequential';
do $$
declare
    v_role text;
begin
    foreach v_role in array array['semel_owner', 'semel_client'] loop
        if not exists (select from pg_roles where rolname = v_role) then
            begin
                execute format('create role %I nologin', v_role);
            exception when insufficient_privilege or duplicate_object or unique_violation then
                null;
            end;
        end if;
    end loop;
    if exists (select from pg_roles where rolname = 'semel_owner')
       and not pg_has_role(current_user, 'semel_owner', 'member') then
        begin
            execute format('grant semel_owner to %I', current_user);
        exception when insufficient_privilege then
            null;
        end;
    end if;
    if exists (select from pg_roles where rolname = 'semel_owner')
       and pg_has_role(current_user, 'semel_owner', 'member')
       and to_regnamespace('semel') is null then
        execute 'create schema semel authorization semel_owner';
    end if;
    create schema if not exists semel;
    if exists (select from pg_namespace where nspname = 'semel'
               and nspowner::regrole::text = 'semel_owner') then
        set local role semel_owner;
    end if;
end
$$;
create table if not exists semel.migration (
    kind       text not null,
    name       text not null,
    sha256     text not null,
    applied_at timestamptz not null default now(),
    applied_by text not null default session_user,

    primary key (kind, name)
);
"""

_CLOSE: LiteralString = """
revoke all on all functions in schema semel from public;
do $$
declare
    v_view text;
begin
    if exists (select from pg_roles where rolname = 'semel_client') then
        grant usage on schema semel to semel_client;
        grant execute on all functions in schema semel to semel_client;
        grant select on semel.migration to semel_client;
        for v_view in select viewname from pg_views where schemaname = 'semel' loop
            execute format('grant select on semel.%I to semel_client', v_view);
        end loop;
    end if;
end
$$;
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One file of the schema."""

    kind: Kind
    name: str
    sql: str

    @property
    def sha256(self) -> str:
        """Its checksum, as the migration table keeps it."""
        return hashlib.sha256(self.sql.encode()).hexdigest()


def parts() -> Iterator[Part]:
    """Every file of the schema in the order of its application."""
    root = resources.files("semel.sql")
    for kind in KINDS:
        files = sorted(
            (f for f in root.joinpath(kind).iterdir() if f.name.endswith(".sql")),
            key=lambda f: f.name,
        )
        for file in files:
            yield Part(kind=kind, name=file.name, sql=file.read_text())


def version() -> int:
    """The number of the last table file that this program brings."""
    return max(int(part.name[:4]) for part in parts() if part.kind == "tables")


def script() -> str:
    """The whole schema as one SQL script, for those who apply it with their own tools."""
    body = "\n".join(
        f"-- {part.kind}/{part.name}\n{part.sql}\n{_record(part)}" for part in parts()
    )
    return f"begin;\n{_PRELUDE}\n{body}\n{_CLOSE}\nselect semel.partitions_make();\ncommit;\n"


def migrate(conn: psycopg.Connection[Any]) -> list[str]:
    """
    Bring the database to this program's schema; answers what was applied, as `kind/name`.

    Args:
        conn: In autocommit; a role that may create a schema.

    Raises:
        SchemaMismatch: a table file differs from what was applied, or the database is newer.
    """
    applied = []
    with conn.transaction():
        conn.execute(_PRELUDE)
        known = _known(conn)
        _refuse_strange(known)
        for part in parts():
            if known.get((part.kind, part.name)) == part.sha256:
                continue
            conn.execute(part.sql.encode())
            conn.execute(
                "insert into semel.migration (kind, name, sha256) values (%s, %s, %s)"
                " on conflict (kind, name) do update set"
                " sha256 = excluded.sha256, applied_at = now(), applied_by = session_user",
                (part.kind, part.name, part.sha256),
            )
            applied.append(f"{part.kind}/{part.name}")
        if applied:
            conn.execute(_CLOSE)
        # Who reads for long keeps them from being made now; upkeep makes them later.
        with contextlib.suppress(LockNotAvailable), conn.transaction():
            conn.execute("select semel.partitions_make()")
    return applied


def check(conn: psycopg.Connection[Any]) -> None:
    """
    Refuse to work on another schema than this program's.

    Raises:
        SchemaMismatch: one line that says what is there, what is needed and what to do.
    """
    found = conn.execute("select to_regclass('semel.migration') is not null").fetchone()
    if not found or not found[0]:
        raise SchemaMismatch("this database has no semel schema: run `semel migrate`")
    known = _known(conn)
    _refuse_strange(known)
    stale = [f"{p.kind}/{p.name}" for p in parts() if known.get((p.kind, p.name)) != p.sha256]
    if stale:
        raise SchemaMismatch(
            f"the schema is behind this program ({', '.join(stale[:3])}"
            f"{', …' if len(stale) > 3 else ''}): run `semel migrate`"  # noqa: PLR2004
        )


def _known(conn: psycopg.Connection[Any]) -> dict[tuple[str, str], str]:
    rows = conn.execute("select kind, name, sha256 from semel.migration").fetchall()
    return {(kind, name): sha for kind, name, sha in rows}


def _refuse_strange(known: dict[tuple[str, str], str]) -> None:
    ours: dict[tuple[str, str], str] = {(p.kind, p.name): p.sha256 for p in parts()}
    for (kind, name), sha in sorted(known.items()):
        if kind != "tables":
            continue
        if (kind, name) not in ours:
            raise SchemaMismatch(
                f"the schema is newer than this program: it has tables/{name},"
                f" this program ends at {version():04}: upgrade the program"
            )
        if ours[kind, name] != sha:
            raise SchemaMismatch(
                f"tables/{name} was applied with another content: released files are never"
                " edited; restore the file, or restore the database from a backup"
            )


def _record(part: Part) -> str:
    return (  # our own file names and checksums
        "insert into semel.migration (kind, name, sha256)"  # noqa: S608
        f" values ('{part.kind}', '{part.name}', '{part.sha256}')"
        " on conflict (kind, name) do update set sha256 = excluded.sha256;\n"
    )
