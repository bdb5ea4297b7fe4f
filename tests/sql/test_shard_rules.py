"""The schema is born shardable by project: what a sharded PostgreSQL would refuse is refused here."""

import re

from fix_world import Conn

#: Not the protocol's: the migrations' own book, which stays on one node.
EXEMPT_TABLES = {"migration"}
#: The reads across projects, and maintenance that makes partitions.
CROSS_PROJECT = {
    "run_hint",
    "due_projects",
    "drain_count",
    "schedule_next",
    "schedule_due",
    "partitions_make",
    "partitions_drop",
}
#: Pure helpers that touch no table.
PURE = {
    "agent_require",
    "key_require",
    "event_key",
    "correlation_key",
    "parts_digest",
    "payload_compares",
    "reconcile_kind",
    "uuid_at",
    "uuid_floor",
    "uuid_time",
    "version_require",
    "body_is_small",
    "input_is_large",
    "notification_more",
    "run_lane",
    "undo_of",
    "run_beside",
    "input_digest",
    "operation_refuse",
    "operation_sound",
    "reply_json",
    "schedule_require",
    "spec_require",
    "spec_ticks_alike",
    "tick_floor",
    "tick_text",
    "bucket_fill",
    "span_us",
    "key_of",
    "concurrency_key_require",
}

#: Pure, and open to be inlined: they fix no search_path, and qualify every name.
INLINED = {
    "event_key",
    "uuid_at",
    "run_lane",
    "body_is_small",
    "input_is_large",
    "operation_sound",
}
#: With the caller's rights and path, which his deferred triggers expect; names nothing unqualified.
INVOKER = {"operation_close"}
#: Called only by functions that have judged the project already.
INTERNAL = {
    "operation_judge",
    "operation_close",
    "project_require",
    "run_create",
    "run_end",
    "run_lock",
    "run_due_find",
    "run_join",
    "event_join",
    "agent_joins",
    "run_lose",
    "run_hold",
    "run_status",
    "run_allowance",
    "agent_full",
    "rate_left",
    "bucket_make",
    "rate_spend",
    "rate_wait",
    "key_admit",
    "key_freed",
    "run_resume",
    "run_spawn",
    "step_put",
    "wait_look",
    "wait_due",
    "child_ended",
    "approval_ask",
    "undo_start",
    "undo_left",
    "attempt_record",
    "worker_touch",
    "body_keep",
    "orphans_drop",
    "journal_absence",
    "schedule_enforce",
    "batch_lives",
    "batch_reopen",
    "tool_ask",
    "tool_outcome",
}


def tables(conn: Conn) -> list[str]:
    found = conn.execute(
        "select relname from pg_class where relnamespace = 'semel'::regnamespace"
        " and relkind in ('r', 'p') and not relispartition"
    )
    return [name for [name] in found if name not in EXEMPT_TABLES]


def functions(conn: Conn) -> list[tuple[str, list[str], str, str, bool, list[str]]]:
    return conn.execute(
        "select proname, coalesce(proargnames, '{}'), prosrc, prokind, prosecdef, coalesce(proconfig, '{}')"
        " from pg_proc where pronamespace = 'semel'::regnamespace order by proname"
    ).fetchall()


def test_every_table_starts_with_the_project(conn: Conn) -> None:
    assert len(tables(conn)) >= 15
    for table in tables(conn):
        first = conn.execute(
            "select attname, format_type(atttypid, null), attnotnull from pg_attribute"
            " where attrelid = ('semel.' || %s)::regclass and attnum = 1",
            (table,),
        ).fetchone()
        assert ("project_id", "text", True) == first, table


def test_every_key_and_index_starts_with_the_project(conn: Conn) -> None:
    rows = conn.execute(
        "select i.indexrelid::regclass::text, c.relname, a.attname"
        " from pg_index as i join pg_class as c on c.oid = i.indrelid"
        " join pg_attribute as a on a.attrelid = i.indrelid and a.attnum = i.indkey[0]"
        " where c.relnamespace = 'semel'::regnamespace"
    ).fetchall()
    strays = [
        (index, first)
        for index, table, first in rows
        if first != "project_id" and table not in EXEMPT_TABLES
    ]
    assert [] == strays


def test_every_table_has_a_primary_key(conn: Conn) -> None:
    keyed = {
        t
        for [t] in conn.execute(
            "select conrelid::regclass::text from pg_constraint where contype = 'p'"
        )
    }
    assert {f"semel.{t}" for t in tables(conn)} <= keyed


def test_nothing_that_a_sharded_server_refuses(conn: Conn) -> None:
    assert (
        []
        == conn.execute(
            "select tgname from pg_trigger join pg_class c on c.oid = tgrelid"
            " where c.relnamespace = 'semel'::regnamespace and not tgisinternal"
        ).fetchall()
    )
    assert (
        []
        == conn.execute(
            "select conname from pg_constraint where connamespace = 'semel'::regnamespace"
            " and contype in ('f', 'x')"
        ).fetchall()
    )
    assert (
        []
        == conn.execute(
            "select relname from pg_class where relnamespace = 'semel'::regnamespace"
            " and relkind = 'S'"
        ).fetchall()
    )
    small = conn.execute(
        "select c.relname, a.attname from pg_attribute as a join pg_class as c on c.oid = a.attrelid"
        " where c.relnamespace = 'semel'::regnamespace and a.attidentity <> ''"
    ).fetchall()
    assert [] == small


def test_every_function_starts_with_the_project_and_refuses_a_strange_one(conn: Conn) -> None:
    for name, arguments, source, kind, _, _ in functions(conn):
        assert "f" == kind, f"{name}: a procedure cannot be delegated"
        if name in CROSS_PROJECT | PURE:
            continue
        assert "p_project" == arguments[0], name
        judged = "project_require" in source or "operation_refuse" in source
        assert judged or name in INTERNAL, name


def test_every_statement_of_a_function_names_its_project(conn: Conn) -> None:
    """Each table that a function reads or writes is joined or filtered by project_id."""
    for name, _, source, _, _, _ in functions(conn):
        if name in CROSS_PROJECT | PURE:
            continue
        touched = set(re.findall(r"(?:from|join|into|update) (semel\.\w+)\b(?! ?\()", source))
        if touched - {"semel.offer"}:
            assert re.search(r"project_id", source), name


def test_no_volatile_call_inside_an_update_or_delete(conn: Conn) -> None:
    """A sharded server refuses clock_timestamp() and the like there; variables carry them."""
    volatile = re.compile(r"clock_timestamp\(|gen_random_uuid\(|random\(|uuid_at\(|nextval\(")
    for name, _, source, _, _, _ in functions(conn):
        for statement in source.split(";"):
            match = re.search(
                r"\b(update semel|delete from semel|do update set)\b.*", statement, re.DOTALL
            )
            assert not (match and volatile.search(match.group())), (
                f"{name}: {statement.strip()[:200]}"
            )


def test_no_notify_no_advisory_lock_no_now(conn: Conn) -> None:
    for name, _, source, _, _, _ in functions(conn):
        code = re.sub(r"--.*", "", source)
        assert not re.search(
            r"pg_notify|advisory|\bnow\(\)|current_timestamp|get diagnostics", code
        ), name


def test_every_function_is_closed_to_the_public_and_fixes_its_path(conn: Conn) -> None:
    for name, _, source, _, definer, config in functions(conn):
        if name in INLINED:
            assert not definer, name
            assert "semel." not in source, name
            continue
        if name in INVOKER:
            assert not definer, name
            assert [] == config, name
            continue
        assert "search_path=pg_catalog" in config, name
        assert definer or name in PURE | {"project_require"}, name
    open_to_all = conn.execute(
        "select proname from pg_proc where pronamespace = 'semel'::regnamespace"
        " and has_function_privilege('public', oid, 'execute')"
    ).fetchall()
    assert [] == open_to_all


def test_functions_belong_to_an_owner_that_is_no_superuser(conn: Conn) -> None:
    owners = conn.execute(
        "select distinct rolname, rolsuper, rolcanlogin from pg_proc join pg_roles r on r.oid = proowner"
        " where pronamespace = 'semel'::regnamespace"
    ).fetchall()
    assert [("semel_owner", False, False)] == owners


def test_a_client_role_may_call_and_read_views_but_not_tables(conn: Conn) -> None:
    conn.execute("set role semel_client")
    assert [] == conn.execute("select * from semel.runs").fetchall()
    assert conn.execute("select * from semel.run_start('p', 'a', '1')").fetchall()
    tables_open = conn.execute(
        "select relname from pg_class where relnamespace = 'semel'::regnamespace and relkind in ('r', 'p')"
        " and has_table_privilege(oid, 'select, insert, update, delete') and relname <> 'migration'"
    ).fetchall()
    assert [] == tables_open
    conn.execute("reset role")


def test_the_dedupe_key_is_the_tables_identity(conn: Conn) -> None:
    """Acceptance 0 of the first seed: the unique key, as the catalog has it."""
    key = conn.execute(
        "select array_agg(a.attname order by k.n) from pg_index as i"
        " cross join lateral unnest(i.indkey) with ordinality as k(att, n)"
        " join pg_attribute as a on a.attrelid = i.indrelid and a.attnum = k.att"
        " where i.indrelid = 'semel.dedupe'::regclass and i.indisprimary"
    ).fetchone()
    assert (["project_id", "dedupe_key"],) == key


def test_an_event_key_is_the_digest_of_its_parts(conn: Conn) -> None:
    for source, name in (("s", "1"), ("", ""), ("台北", "é" * 300), ("a", "b:c"), ("a:b", "c")):
        [[same]] = conn.execute(
            "select semel.event_key(%s, %s) = semel.parts_digest(%s, %s)", (source, name) * 2
        ).fetchall()
        assert same
    [[apart]] = conn.execute(
        "select semel.event_key('ab', 'c') <> semel.event_key('a', 'bc')"
    ).fetchall()
    assert apart
