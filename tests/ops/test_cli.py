"""The command line: what it answers, and in which words."""

import json
import re
from datetime import timedelta
from typing import Literal
from uuid import UUID

from fix_cli import STRANGER, Semel
from fix_world import Conn, one, start_run
from semel.core import claims, inbox, recovery, runs, tokens, upkeep
from semel.db.execute import run
from semel.model import Accepted, Alert, Json, Offer

# -- asking for help ------------------------------------------------------------------------


def test_the_version_needs_no_database(semel: Semel) -> None:
    said = semel("--version")

    assert (said.code, said.out.split()[0]) == (0, "semel")


def test_alone_it_says_what_there_is(semel: Semel) -> None:
    said = semel()

    assert said.code == 0
    for name in ("up", "serve", "worker", "upkeep", "migrate", "db", "run", "event", "token"):
        assert f"\n  {name} " in said.out


def test_a_noun_alone_says_its_verbs_and_is_misuse(semel: Semel) -> None:
    said = semel("run")

    assert (said.code, said.out) == (2, "")
    assert re.search(r"show +One run", said.err)


# -- runs -----------------------------------------------------------------------------------


def test_a_started_run_is_shown_whole(here: Semel) -> None:
    started = here("run", "start", "mail", "--input", '{"to": "a"}', "--key", "k", "--json")
    shown = here("run", "show", started.json["run_id"], "--json").json

    assert started.json["outcome"] == "new"
    expected = {
        "project_id": "default",
        "agent": "mail",
        "status": "PENDING",
        "attempt_count": 0,
        "max_attempts": 3,
        "fence": 0,
        "failure_code": None,
        "failure_reason": None,
        "input": {"to": "a"},
        "result": None,
        "attempts": [],
        "steps": [],
    }
    assert {name: shown[name] for name in expected} == expected
    [event] = shown["events"]
    assert (event["relation"], event["provider_event_id"], event["hits"]) == ("made", "k", 1)


def test_the_same_key_starts_nothing_again(here: Semel) -> None:
    first = here("run", "start", "mail", "--key", "k").out.strip()

    again = here("run", "start", "mail", "--key", "k")

    assert (again.code, again.out) == (0, f"{first} (started before with this key)\n")


def test_the_same_key_with_other_input_is_refused(here: Semel) -> None:
    here("run", "start", "mail", "--key", "k")

    refused = here("run", "start", "mail", "--input", "1", "--key", "k")
    as_json = here("run", "start", "mail", "--input", "1", "--key", "k", "--json")

    assert (refused.code, refused.out) == (1, "")
    what, remedy = refused.err.splitlines()
    assert what.startswith("E-IDEMPOTENT-002 key k was used in project default")
    assert remedy.startswith("Use a new key")
    assert json.loads(as_json.err)["code"] == "E-IDEMPOTENT-002"
    assert set(json.loads(as_json.err)) == {"code", "detail", "remedy"}


def test_a_run_is_found_in_any_project_unless_one_is_named(here: Semel, conn: Conn) -> None:
    run_id = str(start_run(conn, project="shop"))

    assert here("run", "show", run_id).code == 0
    assert here("run", "show", run_id, "--project", "shop").code == 0
    assert here("--project", "shop", "run", "show", run_id).code == 0
    elsewhere = here("run", "show", run_id, "--project", "other")
    assert (elsewhere.code, elsewhere.err.split()[0]) == (1, "E-RUN-001")


def test_a_list_is_of_every_project_until_one_is_told_or_configured(
    here: Semel, conn: Conn
) -> None:
    one, two = start_run(conn, project="one"), start_run(conn, project="two")

    def listed(*words: str, **environ: str) -> set[UUID]:
        lines = here("run", "list", "--json", *words, **environ).lines
        return {UUID(line["run_id"]) for line in lines}

    assert listed() == {one, two}
    assert listed("--project", "one") == {one}
    assert listed(SEMEL_PROJECT="two") == {two}


def test_a_list_is_filtered_newest_first_and_limited(here: Semel, conn: Conn) -> None:
    ids = [str(start_run(conn, agent)) for agent in ("a", "b", "a")]

    found = here("run", "list", "--agent", "a", "--status", "PENDING", "--json").lines

    assert [line["run_id"] for line in found] == [ids[2], ids[0]]
    assert len(here("run", "list", "--limit", "1", "--json").lines) == 1
    assert here("run", "list", "--status", "FAILED", "--json").out == ""
    assert here("run", "list", "--status", "FAILED").out == "no such runs in any project\n"


def test_a_list_for_a_pipe_is_plain_aligned_text(here: Semel, conn: Conn) -> None:
    run_id = start_run(conn, "mail")

    head, row = here("run", "list").out.splitlines()

    assert (
        " ".join(head.split()) == "RUN PROJECT AGENT STATUS ATTEMPTS CREATED FAILURE CODE KIND"
    )
    assert row.startswith(f"{run_id}  p        mail   PENDING  0  ")
    assert row.split()[-2:] == ["-", "work"]


def test_the_timeline_tells_of_the_lost_worker_and_the_next(here: Semel, conn: Conn) -> None:
    run_id = start_run(conn, "mail", {"to": "a"}, key="k")
    lease = inbox.MEMORY
    run(conn, claims.run_claim("p", "mail", "w1", limit=1, lease=lease))
    run(conn, recovery.worker_lost("p", "w1"))
    suspects = [lane + 100 for lane in claims.ORDINARY_LANES]
    again = claims.run_claim("p", "mail", "w2", limit=1, lease=lease, lanes=suspects)
    [claim] = run(conn, again)
    run(conn, runs.run_complete("p", "w2", [(run_id, claim.fence, '{"sent": true}')]))

    said = here("run", "show", str(run_id)).out
    shown = here("run", "show", str(run_id), "--json").json

    assert "status    COMPLETED\n" in said
    assert "attempts  2 of 3, fence 3\n" in said
    assert 'result    {"sent": true}\n' in said
    told = [line[22:].split(" at ")[0].strip() for line in said.split("\n\n")[1].splitlines()]
    assert told == [
        "event     api k made it; seen once",
        "created",
        "attempt   1, fence 1, worker w1: lost",
        "E-LEASE-001 worker w1 was lost",
        "attempt   2, fence 3, worker w2: completed",
        "COMPLETED",
    ]
    assert [a["outcome"] for a in shown["attempts"]] == ["lost", "completed"]
    assert shown["attempts"][0]["reason"] == "worker w1 was lost"


def test_the_timeline_tells_of_the_resolution_of_its_alert(here: Semel, conn: Conn) -> None:
    def notify(status: Literal["firing", "resolved"], ends_ns: int) -> Accepted:
        raw: dict[str, Json] = {
            "labels": {"alertname": "HighCPU"},
            "endsAt": "2026-11-30T10:50:00Z",
        }
        alert = Alert(fingerprint="f", status=status, starts_ns=1, ends_ns=ends_ns, alert=raw)
        body = status.encode()
        call = inbox.alert_accept("p", "alerts", "a", {}, [alert], body=body, headers={})
        [accepted] = run(conn, call)
        return accepted

    made = notify("firing", 0)
    notify("firing", 0)
    notify("resolved", 2)

    said = here("run", "show", str(made.run_id)).out
    shown = here("run", "show", str(made.run_id), "--json").json

    assert re.search(r"event     alerts am1:\S+… made it; seen 2 times", said)
    assert "delivery  duplicate: the same notification again" in said
    assert "resolved HighCPU (ended 2026-11-30T10:50:00Z)" in said
    assert [event["relation"] for event in shown["events"]] == ["made", "resolved"]


def test_a_run_is_cancelled_once_and_may_be_retried(here: Semel, conn: Conn) -> None:
    run_id = str(start_run(conn))

    assert here("run", "cancel", run_id, "--reason", "no longer wanted").out == "cancelled\n"
    assert here("run", "cancel", run_id).out == "was cancelled before\n"
    shown = here("run", "show", run_id, "--json").json
    assert (shown["status"], shown["failure_reason"]) == ("CANCELLED", "no longer wanted")
    assert here("run", "retry", run_id).out == "pending again\n"
    refused = here("run", "retry", run_id)
    assert (refused.code, refused.err.split()[0]) == (1, "E-RUN-002")
    assert here("run", "cancel", STRANGER).err.startswith("E-RUN-001 ")


def test_a_paused_agents_runs_wait_until_it_is_resumed(here: Semel, conn: Conn) -> None:
    start_run(conn, "mail", project="default")

    def claimed() -> int:
        call = claims.run_claim("default", "mail", "w", limit=1, lease=inbox.MEMORY)
        return len(run(conn, call))

    assert here("agent", "pause", "mail").out == "paused in project default\n"
    assert here("agent", "pause", "mail").out == "was paused before in project default\n"
    assert here("agent", "list", "--json").lines[0]["paused_at"]
    assert claimed() == 0
    assert here("agent", "resume", "mail").out == "resumed in project default\n"
    assert claimed() == 1


# -- events ---------------------------------------------------------------------------------


def test_explain_says_why_each_delivery_did_or_did_not_make_a_run(
    here: Semel, conn: Conn
) -> None:
    offer = Offer(source="bot", channel="telegram", id="7", agent="mail", input=1)
    [made] = run(conn, inbox.event_accept("p", [offer]))
    run(conn, inbox.event_accept("p", [offer]))

    said = here("event", "explain", "--source", "bot", "--id", "7").out
    as_json = here("event", "explain", "--source", "bot", "--id", "7", "--json").json

    assert said.startswith(f"id 7 of source bot came 2 times and made run {made.run_id}\n")
    assert "new: first sighting of this id" in said
    assert "duplicate: this id was first seen in event" in said
    assert [one["verdict"] for one in as_json["deliveries"]] == ["new", "duplicate"]
    assert here("event", "show", str(made.event_id), "--json").json["hits"] == 2
    assert here("event", "list", "--json").lines[0]["run_id"] == str(made.run_id)


def test_explain_knows_a_key_that_no_delivery_brought(here: Semel) -> None:
    run_id = here("run", "start", "mail", "--key", "k").out.strip()

    said = here("event", "explain", "--source", "api", "--id", "k")

    assert said.out == f"id k of source api started run {run_id}, seen once\n"


def test_explain_knows_the_earlier_lives_of_an_id(here: Semel, conn: Conn) -> None:
    offer = Offer(source="api", channel="api", id="k", agent="mail")
    now = one(conn, "select clock_timestamp()")
    [first] = run(conn, inbox.event_accept("default", [offer], now=now - timedelta(days=20)))
    words = ("event", "explain", "--source", "api", "--id", "k", "--project", "default")
    made = f"id k of source api came once and made run {first.run_id}"

    run(conn, upkeep.dedupe_expire("default", timedelta(days=7)))
    assert here(*words).out.startswith(f"{made}\n")
    since = here("run", "start", "mail", "--key", "k").out.strip()
    assert here(*words).out.startswith(f"{made}; it stands for run {since} now\n")


def test_explain_has_an_answer_for_an_id_never_seen(here: Semel) -> None:
    said = here("event", "explain", "--source", "bot", "--id", "8")
    as_json = here("event", "explain", "--source", "bot", "--id", "8", "--json").json

    assert said.code == 0
    assert said.out.startswith("id 8 of source bot is not known. It never came, or was refused")
    assert as_json["deliveries"] == []
    assert as_json["explanation"] == said.out.strip()


def test_quarantined_deliveries_are_listed(here: Semel, conn: Conn) -> None:
    bad = Offer(source="bot", channel="telegram", verdict="quarantined", reason="no update_id")
    run(conn, inbox.event_accept("p", [bad]))

    said = here("event", "list", "--verdict", "quarantined")

    assert "bot     quarantined  no update_id" in said.out


# -- tokens ---------------------------------------------------------------------------------


def test_a_token_is_shown_once_works_and_ends_with_its_revocation(
    here: Semel, conn: Conn
) -> None:
    made = here("token", "create", "--role", "producer", "--source", "ci", "--json").json
    listed = here("token", "list", "--json")

    grant = run(conn, tokens.token_check("default", made["token"]))
    assert grant is not None
    assert (grant.role, grant.source) == ("producer", "ci")
    assert listed.lines[0]["token_id"] == made["token_id"]
    assert made["token"] not in listed.out
    assert here("token", "revoke", made["token_id"]).out == "revoked\n"
    assert here("token", "revoke", made["token_id"]).out == "was revoked before\n"
    assert run(conn, tokens.token_check("default", made["token"])) is None
    assert here("token", "revoke", STRANGER).code == 1
