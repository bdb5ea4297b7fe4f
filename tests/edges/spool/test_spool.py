"""While the database is away a source's arrivals wait on the disk, and come in once and in order."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

from fix_world import until
from semel.config import Source
from semel.core import spools
from semel.db.execute import run
from semel.db.pool import connect
from semel.errors import BadConfig
from semel.ops import spool_checks
from semel.ops.doctor import examine
from semel.ops.server import application
from spooling import away, spool, spooled
from web import BASE, Web, count, secret, verdict, web

BOT = Source(name="bot", channel="telegram", agent="chat", spool=True)
ANOTHER = Source(name="another", channel="telegram", agent="chat", spool=True)
STRAIGHT = Source(name="straight", channel="telegram", agent="chat")
API = Source(name="api", channel="api", agent="a", spool=True)
LINE = Source(name="line", channel="line", agent="a", spool=True)
ALERTS = Source(name="alerts", channel="alertmanager", agent="triage", spool=True)


#: Who else has a transaction here, or waits for a lock.
UNDER_WAY = """
select from pg_stat_activity
where datname = current_database() and pid <> pg_backend_pid() and state <> 'idle'
"""


def ids(dsn: str, source: str = "bot") -> list[str]:
    """Of its events, as their runs were made."""
    with connect(dsn) as conn:
        rows = conn.execute(
            "select e.provider_event_id from semel.events as e"
            " join semel.runs as r using (project_id, run_id)"
            " where e.source = %s order by r.created_at",
            (source,),
        )
        return [name for [name] in rows]


def post(client: Web, update_id: int, source: str = "bot", **headers: str) -> httpx.Response:
    return client.post(f"/in/default/{source}", {"update_id": update_id}, headers)


def drained(client: Web, folder: Path) -> None:
    """Have the application run until nothing is on its disk."""

    def empty() -> bool:
        client.run(asyncio.sleep(0.02))
        return not list(folder.rglob("*.spool"))

    until(empty)


def again(client: Web, folder: Path) -> httpx.Response:
    """The first one once more, when nothing waits."""
    drained(client, folder)
    return post(client, 1)


def test_an_arrival_is_spooled_while_the_database_is_away_and_comes_in_afterwards(
    dsn: str, tmp_path: Path
) -> None:
    with web(spooled(dsn, spool(tmp_path / "spool"), BOT, STRAIGHT)) as client:
        assert post(client, 0).status_code == 201
        with away(dsn):
            answers = [post(client, n) for n in (1, 2, 3)]
            assert [(a.status_code, verdict(a)) for a in answers] == [(202, "spooled")] * 3
            assert answers[0].json() == {
                "run_id": None,
                "event_id": None,
                "duplicate": False,
                "spooled": True,
            }
            until(lambda: client.get("/readyz").status_code == 503)
            answer = post(client, 1, "straight")  # which did not ask for it
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
            shown = client.get("/metrics").text
            assert 'semel_spool_records{source="bot"} 3.0' in shown
            assert 'semel_events_total{outcome="spooled",source="bot"} 3.0' in shown
        drained(client, tmp_path / "spool")
        assert ids(dsn) == ["0", "1", "2", "3"]
        shown = client.get("/metrics").text
        assert 'semel_spool_drained_total{outcome="new",source="bot"} 3.0' in shown
        assert 'semel_spool_records{source="bot"} 0.0' in shown
        with connect(dsn) as conn:
            assert count(conn, "runs") == 4
            assert count(conn, "spool_segment") == 0
            [name, source] = conn.execute("select place, source from semel.spools").fetchone()  # type: ignore[misc]
            assert (source, name.endswith(str(tmp_path / "spool"))) == ("bot", True)


def test_what_is_sent_again_while_it_waits_and_afterwards_makes_one_event(
    dsn: str, tmp_path: Path
) -> None:
    with web(spooled(dsn, spool(tmp_path / "spool"), BOT)) as client:
        with away(dsn):
            assert [post(client, 1).status_code for _ in range(3)] == [202] * 3
        drained(client, tmp_path / "spool")
        until(lambda: verdict(again(client, tmp_path / "spool")) == "duplicate")
        with connect(dsn) as conn:
            assert (count(conn, "runs"), count(conn, "deliveries", "verdict = 'new'")) == (1, 1)


def test_who_is_not_authentic_is_refused_and_leaves_nothing_on_the_disk(
    dsn: str, tmp_path: Path
) -> None:
    source = Source(
        name="bot", channel="telegram", agent="chat", spool=True, secrets=(secret("s3cret"),)
    )
    with web(spooled(dsn, spool(tmp_path / "spool"), source)) as client:
        with away(dsn):
            assert post(client, 1).status_code == 401
            assert not list(tmp_path.rglob("*.spool"))
            told = {"X-Telegram-Bot-Api-Secret-Token": "s3cret"}
            assert post(client, 1, **told).status_code == 202
        drained(client, tmp_path / "spool")
    with connect(dsn) as conn:
        assert count(conn, "deliveries", "headers::text like '%s3cret%'") == 0
        assert ids(dsn) == ["1"]


def test_new_ones_go_behind_what_waits_also_when_the_database_is_back(
    dsn: str, tmp_path: Path
) -> None:
    sources = (BOT, ANOTHER, STRAIGHT)
    with web(spooled(dsn, spool(tmp_path / "spool"), *sources)) as client, connect(dsn) as conn:
        with conn.transaction():
            conn.execute("lock table semel.spool_segment in access exclusive mode")
            with away(dsn, conn.info.backend_pid):
                for n in range(5):
                    assert post(client, n).status_code == 202
            until(lambda: post(client, 0, "straight").is_success)
            assert verdict(post(client, 5)) == "spooled"
            assert verdict(post(client, 6, "another")) == "new"
        drained(client, tmp_path / "spool")
        assert ids(dsn) == ["0", "1", "2", "3", "4", "5"]
        assert verdict(post(client, 7)) == "new"


def test_what_nobody_named_is_one_event_though_it_went_both_ways(
    dsn: str, tmp_path: Path
) -> None:
    """The database hangs, so the first way may still succeed when the spool is drained."""
    with web(spooled(dsn, spool(tmp_path / "spool"), API)) as client, connect(dsn) as conn:
        with conn.transaction():
            conn.execute("lock table semel.dedupe in access exclusive mode")
            assert client.post("/in/default/api", {"n": 1}).status_code == 202
        drained(client, tmp_path / "spool")
        until(lambda: not conn.execute(UNDER_WAY).fetchall())
        assert count(conn, "runs") == 1


def test_it_is_judged_by_the_time_of_its_receipt(dsn: str, tmp_path: Path) -> None:
    """Fired, resolved, and fired again inside the grace: a late copy, however long it waited."""
    alert: dict[str, Any] = {
        "status": "firing",
        "labels": {},
        "fingerprint": "a",
        "startsAt": "2026-11-30T10:44:45Z",
    }
    over = {**alert, "status": "resolved", "endsAt": "2026-11-30T10:50:00Z"}
    with web(spooled(dsn, spool(tmp_path / "spool"), ALERTS)) as client:
        with away(dsn):
            for seconds, told in ((0, alert), (10, over), (100, alert), (200, alert)):
                clock = {"X-Semel-Test-Clock": str(BASE + seconds)}
                answer = client.post("/in/default/alerts", {"alerts": [told]}, clock)
                assert verdict(answer) == "spooled"
        drained(client, tmp_path / "spool")
    with connect(dsn) as conn:
        rows = conn.execute(
            "select verdict, extract(epoch from received_at)::float8 - %s"
            " from semel.deliveries where verdict <> 'duplicate' order by received_at",
            (BASE,),
        ).fetchall()
    assert rows == [("new", 0), ("new", 10), ("late", 100), ("new", 200)]


def test_many_events_of_one_request_are_one_record_and_many_events(
    dsn: str, tmp_path: Path
) -> None:
    events = [
        {"type": "message", "webhookEventId": f"e{n}", "mode": "active"} for n in range(3)
    ]
    with web(spooled(dsn, spool(tmp_path / "spool"), LINE)) as client:
        with away(dsn):
            answer = client.post("/in/default/line", {"destination": "d", "events": events})
            assert answer.status_code == 200, "LINE takes nothing else for an answer"
            assert verdict(answer) == "spooled, spooled, spooled"
        drained(client, tmp_path / "spool")
    assert sorted(ids(dsn, "line")) == ["e0", "e1", "e2"]


def test_what_the_database_cannot_keep_is_kept_raw_and_holds_up_nothing(
    dsn: str, tmp_path: Path
) -> None:
    with connect(dsn) as conn:
        conn.execute(
            "create function public.refuse() returns trigger language plpgsql as"
            " $$begin if new.provider_event_id = '3' then raise exception using errcode = '22000',"
            " message = 'no'; end if; return new; end$$"
        )
        conn.execute(
            "create trigger refuse before insert on semel.dedupe for each row execute function public.refuse()"
        )
    with web(spooled(dsn, spool(tmp_path / "spool"), BOT)) as client:
        with away(dsn):
            for n in (2, 3, 4):
                assert post(client, n).status_code == 202
        drained(client, tmp_path / "spool")
    with connect(dsn) as conn:
        assert ids(dsn) == ["2", "4"]
        assert count(conn, "deliveries", "verdict = 'quarantined' and reason like '%: no'") == 1


def test_nothing_of_what_came_is_readable_on_the_disk(dsn: str, tmp_path: Path) -> None:
    with web(spooled(dsn, spool(tmp_path / "spool"), BOT)) as client, away(dsn):
        told = {"update_id": 1, "message": {"text": "a secret word"}}
        assert client.post("/in/default/bot", told).status_code == 202
        [kept] = (tmp_path / "spool").rglob("*.spool")
        raw = kept.read_bytes()
        assert not any(each in raw for each in (b"secret", b"update_id", b"telegram", b"chat"))
        assert kept.stat().st_mode & 0o077 == 0


def test_a_full_spool_answers_503_and_keeps_what_it_has(dsn: str, tmp_path: Path) -> None:
    kept = spool(tmp_path / "spool", bytes_max=1024 * 1024)
    body = {"update_id": 0, "text": "x" * 150_000}
    with web(spooled(dsn, kept, BOT)) as client:
        with away(dsn):
            answers = [
                client.post("/in/default/bot", {**body, "update_id": n}) for n in range(8)
            ]
            taken = [each.status_code for each in answers].index(503)
            assert [each.status_code for each in answers] == [202] * taken + [503] * (8 - taken)
            assert answers[-1].json()["code"] == "E-SPOOL-001"
            assert answers[-1].headers["retry-after"] == "5"
            assert verdict(answers[-1]) == "refused"
            assert f'semel_spool_refused_total{{source="bot"}} {8 - taken}.0' in (
                client.get("/metrics").text
            )
            size = sum(each.stat().st_size for each in (tmp_path / "spool").rglob("*.spool"))
            assert size <= 1024 * 1024
        drained(client, tmp_path / "spool")
        assert ids(dsn) == [str(n) for n in range(taken)]


@pytest.mark.parametrize("broken", ["pwrite", "fsync", "open"])
def test_a_disk_that_fails_answers_503_and_leaves_nothing_half_written(
    dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    folder = tmp_path / "spool"
    real: Any = getattr(os, broken)
    fails = False

    def failing(*args: Any, **kwargs: Any) -> Any:
        if fails and (broken != "open" or str(args[0]).endswith(".spool")):
            if broken == "pwrite":
                real(args[0], bytes(args[1])[:10], *args[2:])
            raise OSError(28, "No space left on device")
        return real(*args, **kwargs)

    monkeypatch.setattr(os, broken, failing)
    with web(spooled(dsn, spool(folder), BOT)) as client:
        with away(dsn):
            assert broken == "open" or post(client, 0).status_code == 202
            fails = True
            answer = post(client, 1)
            assert (answer.status_code, answer.json()["code"]) == (503, "E-SPOOL-001")
            assert "No space left" in answer.json()["detail"]
            fails = False
            assert post(client, 2).status_code == 202
        drained(client, folder)
    assert ids(dsn) == ["2"] if broken == "open" else ["0", "2"]
    assert not (folder / "damaged").exists()


def test_what_waits_is_found_at_the_next_start_and_new_ones_go_behind_it(
    dsn: str, tmp_path: Path
) -> None:
    folder = tmp_path / "spool"
    with away(dsn):
        for n in (0, 2):
            with web(spooled(dsn, spool(folder), BOT, ANOTHER)) as client:
                for each in (n, n + 1):
                    assert post(client, each).status_code == 202
                    assert post(client, each, "another").status_code == 202
    with web(spooled(dsn, spool(folder))) as client:  # its sources are not configured any more
        drained(client, folder)
    assert ids(dsn) == ids(dsn, "another") == ["0", "1", "2", "3"]


def test_a_folder_that_comes_back_out_of_a_backup_makes_no_second_event(
    dsn: str, tmp_path: Path
) -> None:
    folder = tmp_path / "spool"
    told = {"n": 1}  # without an id of its sender
    with away(dsn), web(spooled(dsn, spool(folder), API)) as client:
        assert client.post("/in/default/api", told).status_code == 202
    [kept] = folder.rglob("*.spool")
    raw = kept.read_bytes()
    with web(spooled(dsn, spool(folder), API)) as client:
        drained(client, folder)
    kept.write_bytes(raw)
    with web(spooled(dsn, spool(folder), API)) as client:
        drained(client, folder)
    with connect(dsn) as conn:
        assert count(conn, "runs") == 1


def test_a_second_process_in_the_same_folder_is_refused(dsn: str, tmp_path: Path) -> None:
    told = spooled(dsn, spool(tmp_path / "spool"), BOT)
    with web(told), pytest.raises(BadConfig, match=f"in use by process {os.getpid()}: each"):
        application(told)
    with web(told):
        pass


def test_keys_are_rotated_and_a_key_that_is_missing_is_named(dsn: str, tmp_path: Path) -> None:
    folder = tmp_path / "spool"
    with away(dsn), web(spooled(dsn, spool(folder, "SPOOL"), BOT)) as client:
        assert post(client, 1).status_code == 202
    with pytest.raises(BadConfig, match=r"\.spool was written with another key: add the old"):
        application(spooled(dsn, spool(folder, "OTHER"), BOT))
    with away(dsn), web(spooled(dsn, spool(folder, "OTHER", "SPOOL"), BOT)) as client:
        assert post(client, 2).status_code == 202
    with web(spooled(dsn, spool(folder, "OTHER", "SPOOL"), BOT)) as client:
        drained(client, folder)
    assert ids(dsn) == ["1", "2"]


def test_a_damaged_record_is_set_aside_and_the_others_come_in(
    dsn: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "spool"
    with away(dsn), web(spooled(dsn, spool(folder), BOT)) as client:
        for n in range(3):
            assert post(client, n).status_code == 202
    [kept] = folder.rglob("*.spool")
    raw = bytearray(kept.read_bytes())
    at = raw.find(b"\xf5sr\n", raw.find(b"\xf5sr\n") + 1)
    raw[at + 40] ^= 1
    kept.write_bytes(raw)
    with web(spooled(dsn, spool(folder), BOT)) as client:
        drained(client, folder)
        assert "semel_spool_damaged 1.0" in client.get("/metrics").text
    assert ids(dsn) == ["0", "2"]
    [aside] = (folder / "damaged").iterdir()
    assert aside.name == f"default+bot+{kept.stem}+{at}.damaged"
    end = raw.find(b"\xf5sr\n", at + 1)
    assert aside.read_bytes() == bytes(raw[at:end])
    [told] = [r for r in caplog.records if r.getMessage() == "spool.damaged"]
    fields = told.__dict__["semel_fields"]
    assert (fields["file"], fields["offset"]) == (str(kept), at)
    assert json.loads(json.dumps(fields["bytes"])) == end - at


def test_the_doctor_says_what_is_wrong_with_a_spool(
    dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "spool"
    told = spooled(dsn, spool(folder), BOT)
    with away(dsn), web(told) as client:
        assert post(client, 1).status_code == 202
    (folder / "damaged").mkdir()
    (folder / "damaged" / "x.damaged").write_bytes(b"x")
    for place in ("a:/spool", "b:/spool"):
        with connect(dsn) as conn:
            run(conn, spools.spool_announce("default", uuid4(), place, ["bot"]))
    monkeypatch.setattr(spool_checks, "filesystem", lambda _place: "overlay")

    lines = {each.detail: each for each in examine(told) if each.name == "spool"}

    said = " | ".join(lines)
    assert f"{folder} is on overlay, which goes with its machine or container" in said
    assert "bytes wait to be drained: default/bot" in said
    assert f"1 pieces could not be read, the first is {folder}/damaged/x.damaged" in said
    assert "2 ingresses spool default/bot, each on its own disk: a:/spool, b:/spool" in said
    assert all(each.remedy for each in lines.values())
    assert sum(each.status == "FAIL" for each in lines.values()) == 2


def test_the_doctor_knows_a_file_system_by_the_longest_mount(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(
        f"overlay / overlay rw 0 0\n/dev/sda1 {tmp_path} ext4 rw 0 0\ntmpfs /tmp/other tmpfs rw 0 0\n"
    )
    assert spool_checks.filesystem(tmp_path, str(mounts)) == "ext4"
    assert spool_checks.filesystem(Path("/"), str(mounts)) == "overlay"
    assert spool_checks.filesystem(Path("/"), str(tmp_path / "none")) == "unknown"
