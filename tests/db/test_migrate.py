"""The schema is applied once, whole, by one of many, and only forward."""

import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import psycopg
import pytest

from fix_world import one
from semel.core.deliveries import delivery_read
from semel.db import migrate
from semel.db.execute import run
from semel.db.pool import connect
from semel.errors import SchemaMismatch


def test_a_second_migration_has_nothing_to_do(empty_dsn: str) -> None:
    with connect(empty_dsn) as conn:
        applied = migrate.migrate(conn)
        assert [f"{p.kind}/{p.name}" for p in migrate.parts()] == applied
        assert [] == migrate.migrate(conn)
        migrate.check(conn)


def test_twenty_installers_at_once_do_the_work_of_one(empty_dsn: str) -> None:
    applied: list[list[str]] = []
    failed: list[BaseException] = []
    gate = threading.Barrier(20)

    def install() -> None:
        try:
            with connect(empty_dsn) as conn:
                gate.wait()
                applied.append(migrate.migrate(conn))
        except BaseException as error:  # noqa: BLE001 - whatever it was, it is shown
            failed.append(error)

    threads = [threading.Thread(target=install) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [] == failed
    assert 1 == sum(bool(a) for a in applied)
    with connect(empty_dsn) as conn:
        migrate.check(conn)


def test_an_empty_database_is_refused_with_one_clear_line(empty_dsn: str) -> None:
    with connect(empty_dsn) as conn, pytest.raises(SchemaMismatch) as caught:
        migrate.check(conn)
    assert "this database has no semel schema: run `semel migrate`" == str(caught.value)


def test_a_stale_function_is_refused_and_applied_again(conn: psycopg.Connection[Any]) -> None:
    conn.execute(
        "update semel.migration set sha256 = 'old' where name = 'runs.sql' and kind = 'functions'"
    )

    with pytest.raises(SchemaMismatch, match=r"functions/runs\.sql.*run `semel migrate`"):
        migrate.check(conn)
    assert ["functions/runs.sql"] == migrate.migrate(conn)
    migrate.check(conn)


def test_an_edited_table_file_is_refused(conn: psycopg.Connection[Any]) -> None:
    conn.execute("update semel.migration set sha256 = 'other' where name = '0002_inbox.sql'")

    for step in (migrate.check, migrate.migrate):
        with pytest.raises(
            SchemaMismatch, match=r"0002_inbox\.sql was applied with another content"
        ):
            step(conn)


def test_a_newer_schema_is_refused(conn: psycopg.Connection[Any]) -> None:
    conn.execute(
        "insert into semel.migration (kind, name, sha256) values ('tables', '9999_future.sql', 'x')"
    )

    for step in (migrate.check, migrate.migrate):
        with pytest.raises(SchemaMismatch, match="upgrade the program"):
            step(conn)


def test_a_failed_migration_leaves_nothing(
    empty_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = list(migrate.parts())
    broken = migrate.Part(
        kind="views", name="zz.sql", sql="create view semel.zz as select nothing_such"
    )
    monkeypatch.setattr(migrate, "parts", lambda: iter([*real, broken]))

    with connect(empty_dsn) as conn:
        with pytest.raises(psycopg.Error):
            migrate.migrate(conn)
        assert one(conn, "select to_regnamespace('semel') is null")


def test_an_upgrade_keeps_the_bytes_of_what_came_before_it(
    empty_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = list(migrate.parts())
    old = [
        p
        for p in real
        if (p.kind == "tables" and p.name < "0005")
        # Functions of now take rows of later tables for arguments.
        or (p.kind == "functions" and not re.search(r"p_(row|bucket) semel\.", p.sql))
    ]
    with connect(empty_dsn) as conn:
        with monkeypatch.context() as past:
            past.setattr(migrate, "parts", lambda: iter(old))
            migrate.migrate(conn)
        conn.execute(
            "insert into semel.body values ('p', sha256('raw'), 'raw', now());"
            " insert into semel.delivery (project_id, delivery_id, received_at, source,"
            "   channel_type, verdict, reason, body_digest, headers)"
            " select 'p', gen_random_uuid(), now(), 's', 'api', 'ignored', 'r', sha256('raw'), '{}'"
        )
        migrate.migrate(conn)
        [(name, size)] = conn.execute(
            "select delivery_id, body_bytes from semel.deliveries"
        ).fetchall()
        kept = run(conn, delivery_read("p", name))
    assert (kept is not None and kept.body, size) == (b"raw", 3)


def test_the_printed_script_makes_the_same_schema(empty_dsn: str) -> None:
    with connect(empty_dsn) as conn:
        conn.execute(migrate.script())
        migrate.check(conn)
        assert [] == migrate.migrate(conn)


def test_a_role_that_may_not_create_roles_owns_the_schema_itself(
    conn: psycopg.Connection[Any], server: Any
) -> None:
    """A managed database's application role: no superuser, may create a schema, no more."""
    database = one(conn, "select current_database()")
    role = f"plain_{database}"
    conn.execute(f"create role {role} login")
    conn.execute("drop schema semel cascade")
    conn.execute(f"grant create on database {database} to {role}")
    try:
        with connect(
            psycopg.conninfo.make_conninfo(server.dsn, dbname=database, user=role)
        ) as plain:
            migrate.migrate(plain)
            migrate.check(plain)
            assert role == one(
                plain,
                "select proowner::regrole::text from pg_proc where oid = 'semel.uuid_at'::regproc",
            )
            assert one(plain, "select run_id from semel.run_start('p', 'a', '1')")
    finally:
        conn.execute(f"drop schema semel cascade; drop owned by {role}; drop role {role}")


def test_the_schema_travels_in_the_wheel(tmp_path: Path) -> None:
    """What an installed package brings is what the checkout has."""
    listed = subprocess.run(
        [
            sys.executable,
            "-c",
            "from semel.db import migrate; print(len(list(migrate.parts())), migrate.version())",
        ],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    assert f"{len(list(migrate.parts()))} {migrate.version()}" == listed.stdout.strip()
