"""`semel event`: quarantine is visible, a delivery is replayed, old ids are imported."""

import re
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from fix_cli import STRANGER, Said, Semel
from fix_world import Conn, one, start_run
from semel.core import inbox
from semel.core.sources import source_observe
from semel.db.execute import run
from semel.model import Accepted, Offer

TOML = """
project = "p"

[sources.bot]
project = "p"
channel = "telegram"
agent = "chat"
secrets = ["env:BOT_SECRET"]

[sources.alerts]
project = "p"
channel = "alertmanager"
agent = "triage"
authenticate = "none"
"""


@pytest.fixture
def configured(here: Semel, tmp_path: Path) -> Semel:
    """The command line beside a semel.toml whose secrets this machine does not have."""
    (tmp_path / "semel.toml").write_text(TOML)
    return here


def arrive(conn: Conn, body: bytes = b'{"update_id": 7}', **changes: Any) -> Accepted:
    told: dict[str, Any] = {
        "source": "bot",
        "channel": "telegram",
        "id": "7",
        "agent": "chat",
        "input": {"update_id": 7},
        "body": body,
        "headers": {"x-telegram-bot-api-secret-token": "***"},
        **changes,
    }
    return run(conn, inbox.event_accept("p", [Offer(**told)]))[0]


def quarantine(conn: Conn, body: bytes = b'{"update_id": 7}') -> str:
    arrive(conn, body, id=None, verdict="quarantined", reason="update_id is missing")
    return str(
        one(
            conn,
            "select delivery_id from semel.deliveries order by received_at desc limit 1",
        )
    )


def refused(said: Said) -> tuple[int, str]:
    return said.code, said.err.split()[0]


# -- quarantine -----------------------------------------------------------------------------


def test_a_quarantined_delivery_is_listed_by_its_id_and_shown_raw(
    configured: Semel, conn: Conn
) -> None:
    delivery = quarantine(conn, b'{"up\x1b[31mdate": "\xff\n\xc3\xa4"}')

    listed = configured("event", "list", "--verdict", "quarantined", "--json").lines
    said = configured("event", "show", delivery).out
    shown = configured("event", "show", delivery, "--json").json

    assert [line["delivery_id"] for line in listed] == [delivery]
    assert "verdict   quarantined: update_id is missing" in said
    assert '{"up\\x1b[31mdate": "\\xff\\nä"}' in said
    assert shown["body"] == '{"up\\x1b[31mdate": "\\xff\\nä"}'
    assert (shown["body_bytes"], shown["body_shown"]) == (23, 23)


def test_of_a_long_body_the_beginning_is_shown(configured: Semel, conn: Conn) -> None:
    delivery = quarantine(conn, b"x" * 5000)

    said = configured("event", "show", delivery).out

    assert said.count("x") < 4200
    assert said.endswith("… of which these are the first 4096\n")


def test_a_purged_body_is_said_to_be_purged(configured: Semel, conn: Conn) -> None:
    delivery = quarantine(conn)
    conn.execute("update semel.delivery set body = null")

    assert configured("event", "show", delivery).out.endswith("body      purged\n")
    assert configured("event", "show", delivery, "--json").json["body"] is None


def test_what_is_no_event_and_no_delivery_is_refused(configured: Semel) -> None:
    for words in (["show", STRANGER], ["replay", STRANGER], ["replay", STRANGER, "--dry-run"]):
        assert refused(configured("event", *words)) == (1, "E-EVENT-001")
        assert refused(configured("event", *words, "--project", "p")) == (1, "E-EVENT-001")
    assert configured("event", "replay", "7").code == 2


# -- replay ---------------------------------------------------------------------------------


def test_a_replay_names_its_run_and_a_dry_run_makes_none(configured: Semel, conn: Conn) -> None:
    event = str(arrive(conn).event_id)

    dry = configured("event", "replay", event, "--force", "--dry-run", "--json").json
    said_dry = configured("event", "replay", event, "--force", "--dry-run").out
    runs = one(conn, "select count(*) from semel.runs")
    real = configured("event", "replay", event, "--force", "--json").json
    said = configured("event", "replay", event, "--force").out

    expected = {"verdict": "new", "was": "new", "started": True, "agent": "chat"}
    for answer in (dry, real):
        assert {name: answer[name] for name in expected} == expected
        assert (answer["input"], answer["differs"]) == ({"update_id": 7}, False)
    assert (dry["dry_run"], dry["run_id"], dry["event_id"], runs) == (True, None, None, 1)
    assert said_dry.startswith(
        "would start a run of chat, as the first run: replay 1 of delivery "
    )
    assert UUID(real["run_id"]) != UUID(
        str(one(conn, "select min(run_id::text) from semel.runs"))
    )
    assert re.match(r"started run \S+ of chat, as the first run: replay 2 of", said)
    shown = configured("run", "show", real["run_id"]).out
    assert "event     bot 7: replayed" in shown


def test_a_known_event_is_only_judged_unless_a_run_is_forced(
    configured: Semel, conn: Conn
) -> None:
    accepted = arrive(conn)

    judged = configured("event", "replay", str(accepted.event_id), "--json").json
    said = configured("event", "replay", str(accepted.event_id)).out

    assert (judged["verdict"], judged["started"], judged["forced"]) == (
        "duplicate",
        False,
        False,
    )
    assert judged["run_id"] == str(accepted.run_id)
    assert said.startswith(f"duplicate; its run is {accepted.run_id}: this id was first seen")
    assert one(conn, "select count(*) from semel.runs") == 1


def test_explain_says_why_an_event_was_ignored_and_how_many_were_refused(
    configured: Semel, conn: Conn
) -> None:
    arrive(conn, id="8", verdict="ignored", reason="no route takes it")
    run(conn, source_observe("p", {("bot", "refused"): 3, ("pot", "refused"): 5}))

    ignored = configured("event", "explain", "--source", "bot", "--id", "8").out
    unknown = configured("event", "explain", "--source", "bot", "--id", "9").out

    assert "id 8 of source bot came once and made no run: ignored, no route takes it" in ignored
    assert "The source refused 3 requests in the last hour" in unknown


def test_a_replay_out_of_quarantine_is_told_and_still_listed_with_its_run(
    configured: Semel, conn: Conn
) -> None:
    delivery = quarantine(conn)

    real = configured("event", "replay", delivery, "--json").json
    said = configured("event", "replay", delivery).out

    assert (real["was"], real["verdict"], real["started"]) == ("quarantined", "new", True)
    assert said.startswith(f"duplicate; its run is {real['run_id']}: this id was first seen")
    [listed] = configured("event", "list", "--verdict", "quarantined", "--json").lines
    assert (listed["event_id"], listed["run_id"]) == (real["event_id"], real["run_id"])
    assert arrive(conn).verdict == "duplicate"


def test_what_stays_unusable_is_refused_by_its_code(configured: Semel, conn: Conn) -> None:
    delivery = quarantine(conn, b"{")

    said = configured("event", "replay", delivery)
    dry = configured("event", "replay", delivery, "--dry-run")

    assert refused(said) == (1, "E-SOURCE-003")
    assert (dry.code, dry.out.startswith("would be quarantined, and no run: ")) == (0, True)


def test_a_purged_body_and_an_unknown_source_are_refused_by_their_codes(
    configured: Semel, conn: Conn
) -> None:
    event = str(arrive(conn).event_id)
    elsewhere = str(arrive(conn, id="8", source="gone").event_id)

    assert refused(configured("event", "replay", elsewhere)) == (1, "E-SOURCE-001")
    conn.execute("update semel.delivery set body = null")
    assert refused(configured("event", "replay", event)) == (1, "E-EVENT-002")


def test_an_event_that_a_program_started_has_no_body_to_replay(
    configured: Semel, conn: Conn
) -> None:
    start_run(conn, key="k")
    event = str(one(conn, "select event_id from semel.events"))

    said = configured("event", "replay", event)

    assert refused(said) == (1, "E-EVENT-001")
    assert "started by a program" in said.err


# -- import ---------------------------------------------------------------------------------


@pytest.fixture
def legacy(conn: Conn) -> Conn:
    """The first seed's table, as its migration makes it, with 2500 ids of this project."""
    conn.execute("create schema awooop")
    conn.execute(
        "create table awooop.channel_event_dedupe ("
        " dedupe_id uuid primary key default gen_random_uuid(),"
        " project_id varchar(64) not null, channel_type varchar(32) not null,"
        " provider_event_id varchar(256) not null, run_id uuid not null,"
        " created_at timestamptz not null default now(),"
        " unique (project_id, channel_type, provider_event_id))"
    )
    conn.execute(
        "insert into awooop.channel_event_dedupe"
        " (project_id, channel_type, provider_event_id, run_id, created_at)"
        " select 'p', 'telegram', n::text, gen_random_uuid(), now() - interval '20 days'"
        " from generate_series(1, 2500) as n"
        " union all select 'other', 'telegram', 'x', gen_random_uuid(), now()"
        " union all select 'p', 'line', 'y', gen_random_uuid(), now()"
        " union all select 'p', 'alertmanager', 'z', gen_random_uuid(), now()"
        " union all select 'p', 'api', 'k', gen_random_uuid(), 'infinity'"
    )
    return conn


TABLE = "awooop.channel_event_dedupe"


def test_the_old_systems_ids_stay_seen_and_the_import_may_be_run_again(
    configured: Semel, legacy: Conn
) -> None:
    first = configured("event", "import-legacy", TABLE, "--source", "bot", "--json").json
    again = configured("event", "import-legacy", TABLE, "--source", "bot")

    assert {name: first[name] for name in ("read", "imported", "known")} == {
        "read": 2500,
        "imported": 2500,
        "known": 0,
    }
    assert again.out.startswith("0 ids imported, 2500 were known, of 2500 in awooop.channel")
    assert one(legacy, "select count(*) from semel.events") == 2500
    arrived = arrive(legacy)
    old = one(
        legacy, "select run_id from awooop.channel_event_dedupe where provider_event_id = '7'"
    )
    assert (arrived.verdict, arrived.run_id) == ("duplicate", old)
    explained = configured("event", "explain", "--source", "bot", "--id", "8").out
    assert explained.startswith("id 8 of source bot started run ")


def test_another_project_and_channel_are_taken_when_told(
    configured: Semel, legacy: Conn
) -> None:
    def counted(*words: str) -> Any:
        return configured("event", "import-legacy", TABLE, *words, "--json").json["imported"]

    assert counted("--source", "bot", "--channel", "line") == 1
    assert counted("--source", "api") == 1
    assert counted("--source", "api", "--project", "other") == 0


def test_alertmanagers_ids_are_refused_with_the_reason(configured: Semel, legacy: Conn) -> None:
    for words in (["--source", "alerts"], ["--source", "bot", "--channel", "alertmanager"]):
        said = configured("event", "import-legacy", TABLE, *words)
        assert refused(said) == (1, "E-EVENT-003")
        assert "group key and a hash" in said.err
    assert one(legacy, "select count(*) from semel.events") == 0


def test_an_unknown_source_is_refused(configured: Semel, legacy: Conn) -> None:
    said = configured("event", "import-legacy", TABLE, "--source", "pot")

    assert refused(said) == (1, "E-SOURCE-001")
    assert "there are alerts, bot, api" in said.err


@pytest.mark.parametrize(
    "table",
    [
        "nosuch",
        "awooop.nosuch",
        "nosuch.channel_event_dedupe",
        "a.b.c.d",
        "",
        "a b",
        '"',
        "awooop.channel_event_dedupe; drop table awooop.channel_event_dedupe",
        "pg_class",
        "strange",
    ],
)
def test_what_is_no_dedupe_table_is_refused(
    configured: Semel, legacy: Conn, table: str
) -> None:
    legacy.execute("create table strange (project_id text, channel_type text, run_id uuid)")

    assert refused(configured("event", "import-legacy", table, "--source", "bot")) == (
        1,
        "E-EVENT-003",
    )


def test_a_quoted_name_is_one_name(configured: Semel, legacy: Conn) -> None:
    legacy.execute('alter table awooop.channel_event_dedupe rename to "Old; ""Ids"""')

    said = configured("event", "import-legacy", 'awooop."Old; ""Ids"""', "--source", "bot")

    assert (said.code, said.err) == (0, "")


def test_a_run_id_that_is_none_is_refused_by_the_tables_name(
    configured: Semel, legacy: Conn
) -> None:
    legacy.execute("alter table awooop.channel_event_dedupe alter run_id type text")
    legacy.execute("update awooop.channel_event_dedupe set run_id = 'seven'")

    said = configured("event", "import-legacy", TABLE, "--source", "bot")

    assert refused(said) == (1, "E-EVENT-003")
    assert "awooop.channel_event_dedupe cannot be read" in said.err


def test_an_old_run_is_named_though_it_is_not_here(configured: Semel, legacy: Conn) -> None:
    configured("event", "import-legacy", TABLE, "--source", "bot")
    old = str(one(legacy, "select run_id from semel.events where provider_event_id = '7'"))

    assert refused(configured("run", "show", old)) == (1, "E-RUN-001")
