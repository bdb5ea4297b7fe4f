"""A source that polls: each update once, whatever the server, the network or a twin does."""

import json
import logging
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from bot_api import TOKEN, BotApi, bot_api, refused
from fix_world import Conn, one, until
from polling import bot, polling
from semel.core.inbox import event_accept
from semel.db.execute import run
from semel.edges.poller.pace import Pace
from semel.model import Offer

SHORT = timedelta(seconds=3)
MESSAGE: dict[str, Any] = {"message": {"chat": {"id": 5}, "text": "hi"}}


@pytest.fixture
def api() -> Iterator[BotApi]:
    with bot_api() as running:
        yield running


def names(conn: Conn) -> list[int]:
    rows = conn.execute("select provider_event_id from semel.events where source = 'bot'")
    return sorted(int(name) for [name] in rows)


def runs(conn: Conn) -> int:
    return int(one(conn, "select count(*) from semel.runs"))


def verdicts(conn: Conn) -> list[str]:
    rows = conn.execute(
        "select verdict from semel.deliveries order by received_at, delivery_id"
    )
    return [verdict for [verdict] in rows]


def state(conn: Conn) -> Any:
    return conn.execute("select state, said from semel.polls").fetchone()


def said(log: pytest.LogCaptureFixture, event: str) -> list[dict[str, Any]]:
    return [
        vars(record)["semel_fields"] for record in log.records if record.getMessage() == event
    ]


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, logger="semel")
    return caplog


# -- updates --------------------------------------------------------------------------------


def test_each_update_is_one_event_and_one_run_and_then_forgotten(
    conn: Conn, dsn: str, api: BotApi
) -> None:
    ids = api.push(*[MESSAGE] * 3)
    with polling(dsn, bot(api)) as running:
        until(lambda: len(names(conn)) == 3)
        ids += api.push(MESSAGE)
        until(lambda: api.pending == [] and names(conn) == ids)
        until(lambda: running.observed["new"] == 4)
        assert running.status.role == "polling"
        assert running.status.next_id == ids[-1] + 1
    assert runs(conn) == 4
    assert one(conn, "select input #>> '{message,text}' from semel.runs limit 1") == "hi"
    assert state(conn) == ("stopped", "")
    assert "offset" not in api.asked[0]
    assert [asked["timeout"] for asked in api.asked[:2]] == [0, 50]
    assert api.asked[0]["limit"] == 100
    assert api.asked[0]["allowed_updates"] == []


def test_the_settings_reach_the_server(conn: Conn, dsn: str, api: BotApi) -> None:
    source = bot(api, limit=7, allowed_updates=("message", "poll"))
    api.push(*[MESSAGE] * 20)
    with polling(dsn, source):
        until(lambda: len(names(conn)) == 20)
    assert api.asked[0]["limit"] == 7
    assert api.asked[0]["allowed_updates"] == ["message", "poll"]


def test_a_restart_goes_on_where_it_was(conn: Conn, dsn: str, api: BotApi) -> None:
    [first] = api.push(MESSAGE)
    with polling(dsn, bot(api)):
        until(lambda: names(conn) == [first])
    asked = len(api.asked)
    [then] = api.push(MESSAGE)
    with polling(dsn, bot(api)):
        until(lambda: names(conn) == [first, then])
    assert api.asked[asked]["offset"] == first + 1
    assert set(verdicts(conn)) == {"new"}


def test_a_webhook_before_makes_no_doubles(conn: Conn, dsn: str, api: BotApi) -> None:
    ids = api.push(MESSAGE, MESSAGE)
    posted = Offer(
        source="bot", channel="telegram", id=str(ids[0]), agent="chat", input=MESSAGE
    )
    run(conn, event_accept("default", [posted]))
    with polling(dsn, bot(api)):
        until(lambda: names(conn) == ids)
    assert runs(conn) == 2
    assert verdicts(conn).count("duplicate") == 1


def test_a_huge_batch_is_taken_in_parts(conn: Conn, dsn: str, api: BotApi) -> None:
    batch = [{"update_id": n, **MESSAGE} for n in range(1000, 1700)]
    body = json.dumps({"ok": True, "result": batch}).encode()
    api.answers += [(200, {}, body)] * 3
    with polling(dsn, bot(api)):
        until(lambda: len(names(conn)) >= 256)
        until(lambda: len(api.asked) >= 2)
        assert api.asked[1]["offset"] == 1256
        # Its third answer is the same once more, and all that was asked for is in none of them.
        until(lambda: one(conn, "select next_id from semel.polls") == 1256)
    assert set(names(conn)) == set(range(1000, 1256))


def test_ids_that_go_down_are_followed(conn: Conn, dsn: str, api: BotApi) -> None:
    ids = api.push(MESSAGE)
    with polling(dsn, bot(api)) as running:
        until(lambda: names(conn) == ids)
        api.begin_anew(1000)
        ids = [*api.push(MESSAGE), *ids]
        until(lambda: names(conn) == ids)
        ids = [ids[0], *api.push(MESSAGE), ids[1]]
        until(lambda: names(conn) == ids)
        until(lambda: running.status.restarts == 1)
        assert running.status.missing == 0


def test_ids_that_never_came_are_told(
    conn: Conn, dsn: str, api: BotApi, log: pytest.LogCaptureFixture
) -> None:
    ids = api.push(MESSAGE)
    with polling(dsn, bot(api)) as running:
        until(lambda: names(conn) == ids)
        api.skip(3)
        ids += api.push(MESSAGE)
        until(lambda: names(conn) == ids)
        until(lambda: running.status.missing == 3)
    [told] = said(log, "poller.missed")
    assert told["count"] == 3


# -- unusable updates -----------------------------------------------------------------------

UNUSABLE = {
    "a number": b"5",
    "null": b"null",
    "text": b'"x"',
    "a list": b"[]",
    "nothing": b"{}",
    "an id that is text": b'{"update_id":"7"}',
    "an id that is a truth": b'{"update_id":true}',
    "an id with an exponent": b'{"update_id":1e99}',
    "a NUL": b'{"update_id":%d,"message":{"text":"\\u0000"}}',
    "half a pair": b'{"update_id":%d,"message":{"text":"\\ud800"}}',
    "no UTF-8": b'{"update_id":%d,"message":{"text":"\xff"}}',
    "no number": b'{"update_id":%d,"message":NaN}',
    "deep": b'{"update_id":%d,"message":' + b"[" * 300 + b"]" * 300 + b"}",
    "very deep": b'{"update_id":%d,"message":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
}


@pytest.mark.parametrize("what", ["very deep", "any other"])
def test_unusable_updates_are_quarantined_and_passed(
    conn: Conn, dsn: str, api: BotApi, what: str
) -> None:
    told = [
        UNUSABLE[name] for name in UNUSABLE if (name == "very deep") == (what == "very deep")
    ]
    first = api.push(MESSAGE)
    raws = [raw.replace(b"%d", str(api.push_raw(raw)).encode()) for raw in told]
    last = api.push(MESSAGE)
    with polling(dsn, bot(api)):
        until(lambda: len(names(conn)) == 2 and api.pending == [])
    assert names(conn) == first + last
    assert sorted(verdicts(conn)) == ["new", "new", *["quarantined"] * len(told)]
    kept = conn.execute(
        "select coalesce(d.body, b.content), d.reason from semel.delivery as d left join semel.body"
        " as b using (project_id, body_digest) where d.verdict = 'quarantined'"
    ).fetchall()
    assert {bytes(body) for body, _ in kept} == set(raws)
    assert all(reason for _, reason in kept)


def test_what_the_database_cannot_keep_is_quarantined_and_passed(
    conn: Conn, dsn: str, api: BotApi
) -> None:
    conn.execute(
        "create function semel_fails() returns trigger language plpgsql as $$ begin"
        " if new.input::text like '%unkeepable%' then raise exception using errcode = '22003',"
        " message = 'it is too much'; end if; return new; end $$"
    )
    conn.execute(
        "create trigger fails before insert on semel.run for each row execute function semel_fails()"
    )
    ids = api.push(MESSAGE, {"message": {"text": "unkeepable"}}, MESSAGE)
    with polling(dsn, bot(api)):
        until(lambda: names(conn) == [ids[0], ids[2]] and api.pending == [])
    assert sorted(verdicts(conn)) == ["new", "new", "quarantined"]


def test_only_updates_without_an_id_are_quarantined_and_passed(
    conn: Conn, dsn: str, api: BotApi
) -> None:
    first = api.push(MESSAGE)
    with polling(dsn, bot(api)) as running:
        until(lambda: names(conn) == first and api.open)
        api.push_raw(b'{"message":{}}')
        until(lambda: "quarantined" in verdicts(conn))
        last = api.push(MESSAGE)
        until(lambda: names(conn) == first + last and api.pending == [])
        until(lambda: running.status.role == "polling")


def test_updates_without_an_id_at_the_very_beginning_are_not_asked_in_a_hurry(
    conn: Conn, dsn: str, api: BotApi
) -> None:
    api.push_raw(b'{"message":{}}')
    with polling(dsn, bot(api), pace=Pace(scale=0.1)):
        until(lambda: (state(conn) or ("",))[0] == "failing")
        assert state(conn)[1] == "its updates have no update_id"
        api.push(MESSAGE)
        until(lambda: len(names(conn)) == 1 and api.pending == [])


# -- what is not an answer ------------------------------------------------------------------

GARBAGE = {
    "no JSON": (200, {}, b"<html>"),
    "nothing": (200, {}, b""),
    "cut off": (200, {}, b'{"ok":true,"result":[{"update_id":1,'),
    "a list": (200, {}, b"[]"),
    "no list": (200, {}, b'{"ok":true,"result":{"update_id":1}}'),
    "no result": (200, {}, b'{"ok":true}'),
    "ok: false": (200, {}, b'{"ok":false,"error_code":500,"description":"x"}'),
    "ok: 1": (200, {}, b'{"ok":1,"result":[{"update_id":1}]}'),
    "500": (500, {}, b""),
    "502": (502, {}, b"<html>bad gateway</html>"),
    "a redirect": (302, {"Location": "http://127.0.0.1:9/"}, b""),
    "400": refused(400, "Bad Request: offset is wrong"),
    "no body": (204, {}, b""),
    "a shorter body": (200, {"Content-Length": "999", "Connection": "close"}, b"{"),
    "not UTF-8": (200, {}, b'\xff\xfe{"ok":true}'),
}


def test_an_answer_that_is_none_loses_nothing(
    conn: Conn, dsn: str, api: BotApi, log: pytest.LogCaptureFixture
) -> None:
    ids = api.push(MESSAGE, MESSAGE)
    api.answers += GARBAGE.values()
    with polling(dsn, bot(api), pace=Pace(scale=0.001)) as running:
        until(lambda: names(conn) == ids and api.pending == [])
        until(lambda: running.status.role == "polling")
    assert verdicts(conn) == ["new", "new"]
    assert len(said(log, "poller.failed")) == len(GARBAGE)
    assert TOKEN.partition(":")[2] not in str([record.__dict__ for record in log.records])


def test_a_server_that_is_away_loses_nothing(conn: Conn, dsn: str) -> None:
    with bot_api() as gone:
        pass
    with polling(dsn, bot(gone)):
        until(lambda: (state(conn) or ("",))[0] == "failing")
        assert state(conn)[1].startswith(f"{gone.url} cannot be reached: ")


@pytest.mark.parametrize(
    ("told", "kind"),
    [
        ("401: Unauthorized", "refused"),
        ("404: Not Found", "refused"),
        ("403: Forbidden: bot was blocked", "refused"),
        ("409: Conflict: terminated by other getUpdates request", "conflict"),
        ("409: Conflict: can't use getUpdates method while webhook is active", "webhook"),
        ("503: Service Unavailable", "failing"),
    ],
)
def test_a_refusal_is_told_and_waited_out(
    conn: Conn, dsn: str, api: BotApi, told: str, kind: str
) -> None:
    code, _, text = told.partition(": ")
    api.answers += [refused(int(code), text)] * 2
    api.push(MESSAGE)
    with polling(dsn, bot(api), pace=Pace(scale=0.05)) as running:
        until(lambda: (state(conn) or ("",))[0] == kind)
        assert state(conn)[1] == f"it answered {told}"
        until(lambda: len(names(conn)) == 1)
        until(lambda: running.status.role == "polling")
        assert running.status.asked[kind] == 2
    assert one(conn, "select failures from semel.polls") == 0


def test_a_throttle_is_obeyed(conn: Conn, dsn: str, api: BotApi) -> None:
    api.answers.append(refused(429, "Too Many Requests: retry after 1", retry_after=1))
    api.push(MESSAGE)
    with polling(dsn, bot(api)):
        until(lambda: (state(conn) or ("",))[0] == "throttled")
        until(lambda: len(names(conn)) == 1)
    assert api.asked[1]["at"] - api.asked[0]["at"] >= 1


def test_a_server_that_does_not_wait_is_not_asked_in_a_hurry(
    conn: Conn, dsn: str, api: BotApi
) -> None:
    api.answers += [(200, {}, b'{"ok":true,"result":[]}')] * 3
    with polling(dsn, bot(api)):
        until(lambda: len(api.asked) == 3)
    assert api.asked[2]["at"] - api.asked[1]["at"] >= 1


def test_a_server_that_forgets_nothing_is_not_asked_in_a_hurry(
    conn: Conn, dsn: str, api: BotApi
) -> None:
    api.answers += [(200, {}, b'{"ok":true,"result":[{"update_id":7}]}')] * 100
    with polling(dsn, bot(api), pace=Pace(scale=0.05)):
        until(lambda: (state(conn) or ("",))[0] == "failing")
        assert state(conn)[1] == "it sends again what it was told to forget"
        until(lambda: len(api.asked) >= 6)
        assert api.asked[5]["at"] - api.asked[4]["at"] > 0.15  # the fourth pause in a row
    assert runs(conn) == 1


def test_a_renewed_token_takes_over_from_the_old_one(conn: Conn, dsn: str, api: BotApi) -> None:
    renewed = "123456:AArenewed"
    with polling(dsn, bot(api, TOKEN, renewed)):
        until(lambda: api.open)
        api.tokens = {renewed}
        ids = api.push(MESSAGE, MESSAGE)
        until(lambda: names(conn) == ids and api.pending == [])
    assert runs(conn) == 2


# -- twins ----------------------------------------------------------------------------------


def test_of_two_processes_one_polls_and_the_other_takes_over_at_its_stop(
    conn: Conn, dsn: str, api: BotApi
) -> None:
    with polling(dsn, bot(api, lease=SHORT)) as first:
        until(lambda: first.status.role == "polling")
        with polling(dsn, bot(api, lease=SHORT)) as second:
            until(lambda: second.status.role == "standby")
            ids = api.push(MESSAGE)
            until(lambda: names(conn) == ids)
            first.stop()
            until(lambda: second.status.role == "polling")
            ids += api.push(MESSAGE)
            until(lambda: names(conn) == ids)
    assert (api.open_max, api.conflicts) == (1, 0)


def test_two_sources_of_one_bot_are_told_of_each_other(
    conn: Conn, dsn: str, api: BotApi, log: pytest.LogCaptureFixture
) -> None:
    with polling(dsn, bot(api)) as first:
        until(lambda: first.status.role == "polling")
        with polling(dsn, bot(api, name="other")) as second:
            until(lambda: second.status.role == "standby")
            [told] = until(lambda: said(log, "poller.stood_back"))
    assert (told["source"], told["holder"]) == ("other", "bot")
    assert api.conflicts == 0


def test_two_projects_of_one_bot_are_told_of_each_other(
    conn: Conn, dsn: str, api: BotApi, log: pytest.LogCaptureFixture
) -> None:
    with polling(dsn, bot(api)) as first:
        until(lambda: first.status.role == "polling")
        with polling(dsn, bot(api, project="q")) as second:
            [told, *_] = until(lambda: said(log, "poller.failed"))
            assert second.status.role == "waiting"
            assert first.status.role == "polling"
    assert told["state"] == "elsewhere"
    assert told["reason"].startswith("source bot of project default polls this bot")
    assert api.conflicts == 0


def test_a_poller_whose_lease_was_taken_asks_no_more(
    conn: Conn, dsn: str, api: BotApi, log: pytest.LogCaptureFixture
) -> None:
    with polling(dsn, bot(api, lease=SHORT)) as running:
        until(lambda: running.status.role == "polling" and api.open)
        conn.execute(
            "update semel.poll set holder = gen_random_uuid(), fence = fence + 1, source = 'x',"
            " lease_until = clock_timestamp() + interval '1 minute'"
        )
        until(lambda: running.status.role == "standby")
        until(lambda: api.open == 0)
    assert said(log, "poller.lost")


def test_what_came_after_the_lease_was_taken_is_left_to_who_took_it(
    conn: Conn, dsn: str, api: BotApi, log: pytest.LogCaptureFixture
) -> None:
    with polling(dsn, bot(api, lease=SHORT)) as running:
        until(lambda: running.status.role == "polling" and api.open)
        conn.execute(
            "update semel.poll set holder = gen_random_uuid(), fence = fence + 1,"
            " lease_until = clock_timestamp() + interval '1 minute'"
        )
        ids = api.push(MESSAGE)
        until(lambda: said(log, "poller.lost"))
        assert api.pending == ids
        assert names(conn) == []
        conn.execute("update semel.poll set lease_until = clock_timestamp()")
        until(lambda: names(conn) == ids)


def test_a_commit_that_was_not_answered_is_not_repeated(
    conn: Conn, dsn: str, api: BotApi
) -> None:
    ids = api.push(MESSAGE)
    with polling(dsn, bot(api)) as running:
        until(lambda: names(conn) == ids and api.open)
        # As if another commit of this very lease had been made, and its answer lost.
        conn.execute("update semel.poll set next_id = next_id + 1")
        ids += api.push(MESSAGE, MESSAGE)
        until(lambda: ids[2] in names(conn))
        until(lambda: running.status.role == "polling")
    assert names(conn) == [ids[0], ids[2]]


def test_a_database_that_is_away_loses_nothing(conn: Conn, dsn: str, api: BotApi) -> None:
    with polling(dsn, bot(api)) as running:
        until(lambda: running.status.role == "polling" and api.open)
        conn.execute("alter table semel.dedupe rename to away")
        ids = api.push(MESSAGE)
        until(lambda: running.status.role == "away")
        assert api.pending == ids
        conn.execute("alter table semel.away rename to dedupe")
        conn.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where datname = current_database() and pid <> pg_backend_pid()"
        )
        until(lambda: names(conn) == ids and api.pending == [])
    assert runs(conn) == 1
