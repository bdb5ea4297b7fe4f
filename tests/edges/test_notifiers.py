"""Notifiers: each provider gets the request it expects, and its answer is judged rightly."""

import asyncio
import base64
import hashlib
import hmac
import json
import re
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any
from uuid import UUID, uuid4

import pytest

from fix_world import LEASE, Conn, one, start_run
from provider import Provider, provider
from semel.config import NotifierSettings, Settings
from semel.core import approvals, claims, transitions, waits
from semel.db import link
from semel.db.execute import run
from semel.edges.notifiers import notify
from semel.edges.notifiers.guard import Guard
from semel.edges.notifiers.message import ACTION_CHARS_MAX, Message
from semel.edges.notifiers.notifier import PAUSE_MAX, NotifyLater, NotifyRefused, cleaned
from semel.edges.notifiers.post import Post
from semel.edges.notifiers.webhook import Webhook
from semel.errors import BadConfig, DoNotRetry, LeaseLost, NotifyFailed
from semel.runtime.outcome import of_error

KEY = UUID("123e4567-e89b-12d3-a456-426614174000")
LINK = "https://ops.test/approve/ops.0123456789abcdef"
SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()
ENVIRON = {"TOKEN": "123456:ABC-def", "SECRET": SECRET, "TO": "U01"}


def message(**changes: Any) -> Message:
    told: dict[str, Any] = {
        "project": "ops",
        "approval_id": UUID(int=1),
        "run_id": UUID(int=2),
        "agent": "triage",
        "title": "restart web",
        "action": {"pod": "web-1"},
        "digest": "sha256:00",
        "need": 1,
        "recipient": "bob",
        "created_at": datetime(2026, 11, 30, 12, tzinfo=UTC),
        "expires_at": datetime(2026, 11, 30, 12, 15, tzinfo=UTC),
        "link": LINK,
    }
    return Message(**{**told, **changes})


def configured(kind: Any, where: Provider, **more: Any) -> NotifierSettings:
    place = {"url" if kind == "webhook" else "api": where.url}
    needed: dict[str, dict[str, str]] = {
        "webhook": {},
        "telegram": {"token": "env:TOKEN", "chat": "-100"},
        "slack": {"token": "env:TOKEN", "channel": "C01"},
        "line": {"token": "env:TOKEN", "to": "env:TO"},
    }
    told = {**place, **needed[kind], **more}
    return NotifierSettings(name="bob", kind=kind, allow_private=True, allow_http=True, **told)


def send(settings: NotifierSettings, told: Message | None = None) -> int:
    return asyncio.run(notify.made(settings, ENVIRON).send(told or message(), KEY))


@pytest.fixture
def here() -> Iterator[Provider]:
    with provider() as running:
        yield running


# -- what each provider gets ----------------------------------------------------------------


def test_a_webhook_gets_json_under_its_key_and_a_standard_signature(here: Provider) -> None:
    here.answer(202)

    assert send(configured("webhook", here, secret="env:SECRET", token="env:TOKEN")) == 202

    [got] = here.got
    assert got.headers["content-type"] == "application/json"
    assert got.headers["authorization"] == "Bearer 123456:ABC-def"
    assert got.headers["idempotency-key"] == got.headers["webhook-id"] == str(KEY)
    signed = f"{KEY}.{got.headers['webhook-timestamp']}.".encode() + got.body
    expected = base64.b64encode(hmac.digest(bytes(range(32)), signed, hashlib.sha256)).decode()
    assert got.headers["webhook-signature"] == f"v1,{expected}"
    assert got.json() == {
        "type": "approval.requested",
        "timestamp": "2026-11-30T12:00:00+00:00",
        "data": {
            "project": "ops",
            "approval_id": str(UUID(int=1)),
            "run_id": str(UUID(int=2)),
            "agent": "triage",
            "recipient": "bob",
            "title": "restart web",
            "action": {"pod": "web-1"},
            "digest": "sha256:00",
            "need": 1,
            "expires_at": "2026-11-30T12:15:00+00:00",
            "link": LINK,
        },
    }


def test_the_signature_is_that_of_the_standard_s_own_vector(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(time, "time", lambda: 1614265330.5)
    told = configured("webhook", Provider(port=1), secret="env:VECTOR")
    environ = {"VECTOR": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}

    made = Webhook(told, Post(Guard()), environ)
    headers = made._signed("msg_p5jXN8AQM9LWM0D4loKWxJek", b'{"test": 2432232314}')

    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_a_webhook_without_a_secret_is_not_signed(here: Provider) -> None:
    here.answer(204)

    assert send(configured("webhook", here)) == 204

    [got] = here.got
    assert not {"webhook-signature", "authorization"} & set(got.headers)
    assert got.headers["idempotency-key"] == str(KEY)


def test_telegram_gets_plain_text_for_its_chat(here: Provider) -> None:
    here.answer(200, {"ok": True, "result": {"message_id": 1}})

    assert send(configured("telegram", here)) == 200

    [got] = here.got
    assert got.path == "/bot123456:ABC-def/sendMessage"
    body = got.json()
    assert set(body) == {"chat_id", "text", "link_preview_options"}
    assert body["chat_id"] == "-100"
    assert body["text"].endswith(f"\n{LINK}")
    assert body["link_preview_options"] == {"is_disabled": True}


def test_slack_s_bot_gets_escaped_text_under_a_client_msg_id(here: Provider) -> None:
    here.answer(200, {"ok": True, "ts": "1.2"})

    told = message(title="<!channel> & <https://evil.test|here>")
    assert send(configured("slack", here), told) == 200

    [got] = here.got
    assert got.path == "/chat.postMessage"
    assert got.headers["authorization"] == "Bearer 123456:ABC-def"
    body = got.json()
    assert (body["channel"], body["client_msg_id"]) == ("C01", str(KEY))
    assert (body["unfurl_links"], body["unfurl_media"], body["mrkdwn"]) == (False, False, False)
    assert "&lt;!channel&gt; &amp; &lt;https://evil.test|here&gt;" in body["text"]
    assert "<" not in body["text"]


def test_slack_s_incoming_webhook_gets_no_channel(here: Provider) -> None:
    here.answer(200, b"ok")
    told = NotifierSettings(
        name="bob", kind="slack", url="env:URL", allow_private=True, allow_http=True
    )
    environ = {"URL": f"{here.url}/services/T/B/secret"}

    assert asyncio.run(notify.made(told, environ).send(message(), KEY)) == 200

    [got] = here.got
    assert got.path == "/services/T/B/secret"
    assert set(got.json()) == {"text", "unfurl_links", "unfurl_media"}
    assert "authorization" not in got.headers


def test_line_gets_a_push_under_its_retry_key(here: Provider) -> None:
    here.answer(200, {"sentMessages": []})

    assert send(configured("line", here)) == 200

    [got] = here.got
    assert got.path == "/v2/bot/message/push"
    assert got.headers["x-line-retry-key"] == str(KEY)
    assert got.headers["authorization"] == "Bearer 123456:ABC-def"
    body = got.json()
    assert body["to"] == "U01"
    assert body["messages"] == [{"type": "text", "text": message().text()}]


def test_line_s_409_says_that_an_earlier_attempt_went_well(here: Provider) -> None:
    here.answer(409, {"message": "The retry key is already accepted"})

    assert send(configured("line", here)) == 409


def test_slack_s_missing_duplicate_says_that_an_earlier_attempt_went_well(
    here: Provider,
) -> None:
    here.answer(200, {"ok": False, "error": "duplicate_message_not_found"})

    assert send(configured("slack", here)) == 200


# -- how an answer is judged ----------------------------------------------------------------

KINDS = ("webhook", "telegram", "slack", "line")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504])
def test_what_may_pass_later_is_tried_again(kind: str, status: int, here: Provider) -> None:
    here.answer(status, {"ok": False, "error": "ratelimited"}, Retry_After="7")

    with pytest.raises(NotifyLater) as failed:
        send(configured(kind, here))

    assert failed.value.retry_after == timedelta(seconds=7)
    assert failed.value.retryable
    assert not isinstance(failed.value, DoNotRetry)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("status", [301, 302, 307, 400, 401, 403, 404, 410, 422])
def test_what_a_person_must_mend_ends_the_run(kind: str, status: int, here: Provider) -> None:
    here.answer(status, {"ok": False, "error": "invalid_auth"}, Location="http://127.0.0.1/")

    with pytest.raises(NotifyRefused) as refused:
        send(configured(kind, here))

    assert isinstance(refused.value, NotifyFailed)
    assert isinstance(refused.value, DoNotRetry)
    assert refused.value.code == "E-NOTIFY-001"
    assert str(refused.value).startswith(f"E-NOTIFY-001 it answered {status}")
    assert len(here.got) == 1


def test_a_webhook_s_409_says_that_an_earlier_attempt_is_still_read(here: Provider) -> None:
    here.answer(409)

    with pytest.raises(NotifyLater, match="409"):
        send(configured("webhook", here))


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ("ratelimited", NotifyLater),
        ("internal_error", NotifyLater),
        ("service_unavailable", NotifyLater),
        ("channel_not_found", NotifyRefused),
        ("not_in_channel", NotifyRefused),
        ("token_revoked", NotifyRefused),
    ],
)
def test_slack_says_with_200_that_it_failed(
    error: str, kind: type[NotifyFailed], here: Provider
) -> None:
    here.answer(200, {"ok": False, "error": error})

    with pytest.raises(kind, match=error):
        send(configured("slack", here))


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"[" * 60_000, b"\xff"])
def test_an_answer_of_slack_s_that_cannot_be_read_says_nothing(
    body: bytes, here: Provider
) -> None:
    here.answer(200, body)

    with pytest.raises(NotifyLater, match="no JSON"):
        send(configured("slack", here))


@pytest.mark.parametrize("kind", ["telegram", "line"])
@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"[" * 60_000, b"\xff"])
def test_an_answer_that_cannot_be_read_is_judged_by_its_status(
    kind: str, body: bytes, here: Provider
) -> None:
    here.answer(400, body)

    with pytest.raises(NotifyRefused, match="it answered 400"):
        send(configured(kind, here))


def test_telegram_says_in_its_body_how_long_to_wait_and_why(here: Provider) -> None:
    here.answer(
        429,
        {
            "ok": False,
            "error_code": 429,
            "description": "Too Many Requests: retry after 31",
            "parameters": {"retry_after": 31},
        },
    )

    with pytest.raises(NotifyLater, match="Too Many Requests") as failed:
        send(configured("telegram", here))

    assert failed.value.retry_after == timedelta(seconds=31)


@pytest.mark.parametrize(
    ("told", "pause"),
    [
        ("0", timedelta(0)),
        ("120", timedelta(minutes=2)),
        ("999999999999", PAUSE_MAX),
        ("Wed, 21 Oct 2015 07:28:00 GMT", timedelta(0)),
        (format_datetime(datetime(2999, 1, 1, tzinfo=UTC), usegmt=True), PAUSE_MAX),
        ("soon", None),
        ("-5", None),
        ("", None),
        ("²", None),
    ],
)
def test_retry_after_is_read_in_both_its_forms(
    told: str, pause: timedelta | None, here: Provider
) -> None:
    here.answer(503, Retry_After=told.encode().decode("latin-1"))

    with pytest.raises(NotifyLater) as failed:
        send(configured("webhook", here))

    assert failed.value.retry_after == pause


def test_a_provider_that_is_down_is_tried_again() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, and nobody listens
        nobody = Provider(port=taken.getsockname()[1])

        with pytest.raises(NotifyLater, match="cannot be reached"):
            send(configured("webhook", nobody))


def test_a_private_address_that_nobody_allowed_ends_the_run(here: Provider) -> None:
    told = NotifierSettings(name="bob", kind="webhook", url=here.url, allow_http=True)

    with pytest.raises(NotifyRefused, match="not public"):
        send(told)

    assert here.got == []


def test_a_token_that_no_header_can_hold_ends_the_run(here: Provider) -> None:
    made = notify.made(configured("line", here), {"TOKEN": "a\nb", "TO": "U"})

    with pytest.raises(NotifyRefused, match="no header"):
        asyncio.run(made.send(message(), KEY))


# -- what is told, and what never is --------------------------------------------------------


def test_the_text_says_what_is_asked_and_ends_with_the_link() -> None:
    assert message(need=2).text() == (
        "Approve? restart web\n\n"
        "Agent: triage (ops)\n"
        "Run: 00000000-0000-0000-0000-000000000002\n"
        'Action: {"pod": "web-1"}\n'
        "Until: 2026-11-30 12:15:00 UTC, 2 people must\n\n"
        f"{LINK}"
    )


def test_what_the_program_wrote_is_cut_and_can_look_like_no_line_of_ours() -> None:
    forged = f"x\n\nhttps://evil.test/{chr(0x202E)}\r\0"
    text = message(title=forged * 100, action={"a": "😀" * 99_999}).text()

    assert len(text.encode("utf-16-le")) // 2 < 4096, "Telegram's limit, the lowest"
    assert text.splitlines()[0].startswith("Approve? x  https://evil.test/")
    assert [line for line in text.splitlines() if line.startswith("http")] == [LINK]
    assert chr(0x202E) not in text
    assert f"{'😀' * 100}" in text
    assert len(message(action="x" * 9_999).written()) == ACTION_CHARS_MAX


@pytest.mark.parametrize("kind", KINDS)
def test_no_error_quotes_a_link_or_a_secret_that_a_provider_echoes(
    kind: str, here: Provider
) -> None:
    words = dict.fromkeys(("description", "error", "message"), f"{LINK} of 123456:ABC-def")
    here.answer(400, {"ok": False, **words})

    with pytest.raises(NotifyRefused) as refused:
        send(configured(kind, here))

    said = str(refused.value)
    assert "0123456789abcdef" not in said
    assert "ABC-def" not in said


def test_what_a_provider_says_is_made_short_and_printable() -> None:
    assert cleaned("a\r\nb" + "c" * 999) == "a  b" + "c" * 196
    assert cleaned(None) == cleaned(7) == ""


def test_a_message_is_shown_without_its_link() -> None:
    assert "0123456789abcdef" not in repr(message())


# -- the run --------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Held:
    """What the handler is handed."""

    id: UUID
    project: str
    worker: str
    fence: int
    input: Any


class World:
    """A run that is parked for an approval, and its notification's run under work."""

    def __init__(self, conn: Conn, dsn: str) -> None:
        self._conn = conn
        self._dsn = dsn
        self.parent = start_run(conn, "triage")
        [held] = run(conn, claims.run_claim("p", "triage", "w", limit=1, lease=LEASE))
        self.approval = uuid4()
        asked = waits.Question(
            id=self.approval,
            title="restart web",
            action={"pod": "web-1"},
            digest="sha256:00",
            notify=("bob",),
        )
        wait = waits.Wait(key="ok", kind="approval", due=timedelta(minutes=15), question=asked)
        [(_, outcome, _)] = run(conn, waits.run_park("p", "w", held.run_id, held.fence, [wait]))
        assert outcome == "parked"

    def claimed(self) -> Held:
        [held] = run(self._conn, claims.run_claim("p", notify.AGENT, "w", limit=1, lease=LEASE))
        return Held(
            id=held.run_id,
            project="p",
            worker="w",
            fence=held.fence,
            input=json.loads(held.text),
        )

    def failed(self, held: Held) -> None:
        """The attempt failed, and the run is ready again at once."""
        self._conn.execute(
            "select semel.run_fail('p', 'w', %s, %s, 'E-NOTIFY-001', 'down', '0', true)",
            (held.id, held.fence),
        )

    def decide(self, link_: approvals.Link | None = None) -> str:
        return run(
            self._conn,
            approvals.approval_decide(
                "p",
                "approve",
                via="link" if link_ else "cli",
                link=link_,
                approval_id=None if link_ else self.approval,
                voter=None if link_ else "ann",
            ),
        ).outcome

    def handle(self, held: Held, *notifiers: NotifierSettings) -> dict[str, Any]:
        settings = Settings(
            notifiers={each.name: each for each in notifiers},
            public_url="https://ops.test/semel/",
        )

        async def handled() -> dict[str, Any]:
            database = link.Link(self._dsn, name="test")
            try:
                return await notify.notify_agent(settings, database, ENVIRON)(held)
            finally:
                await database.close()

        return asyncio.run(handled())


@pytest.fixture
def world(conn: Conn, dsn: str) -> World:
    return World(conn, dsn)


def link_in(got: Any) -> approvals.Link:
    found = re.search(r"https://ops\.test/semel/approve/(\S+)", got.json()["data"]["link"])
    assert found
    read = approvals.Link.read(found[1])
    assert read
    return read


def test_a_person_is_told_and_the_link_decides(world: World, here: Provider) -> None:
    here.answer(200)

    result = world.handle(world.claimed(), configured("webhook", here))

    assert result == {"sent": True, "via": "webhook", "status": 200}
    [got] = here.got
    assert got.json()["data"]["run_id"] == str(world.parent)
    assert got.json()["data"]["agent"] == "triage"
    assert world.decide(link_in(got)) == "won"


def test_each_attempt_has_a_link_of_its_own_and_the_key_of_the_run(
    world: World, here: Provider, conn: Conn
) -> None:
    here.answer(503)
    here.answer(200)
    first = world.claimed()
    with pytest.raises(NotifyLater):
        world.handle(first, configured("webhook", here))
    world.failed(first)

    again = world.claimed()
    result = world.handle(again, configured("webhook", here))

    assert (again.id, result["sent"]) == (first.id, True)
    one_, two = here.got
    assert one_.headers["idempotency-key"] == two.headers["idempotency-key"]
    assert link_in(one_) != link_in(two)
    assert one(conn, "select count(*) from semel.approval_token") == 2
    assert world.decide(link_in(one_)) == "won", "who got only the first may decide by it"
    assert world.decide(link_in(two)) == "already"


def test_only_the_hash_of_a_link_is_kept(world: World, here: Provider, conn: Conn) -> None:
    here.answer(200)
    world.handle(world.claimed(), configured("webhook", here))

    sent = link_in(here.got[0])
    assert one(conn, "select token_hash from semel.approval_token") == sent.hash
    assert one(conn, "select recipient from semel.approval_token") == "bob"
    assert not one(
        conn,
        "select count(*) from semel.runs as r where r::text like '%%' || %s || '%%'",
        sent.secret,
    )


def test_a_decided_approval_is_told_to_nobody(world: World, here: Provider) -> None:
    held = world.claimed()
    world.decide()

    result = world.handle(held, configured("webhook", here))

    assert result == {"sent": False, "reason": "approved"}
    assert here.got == []


def test_an_approval_of_a_cancelled_run_is_told_to_nobody(
    world: World, here: Provider, conn: Conn
) -> None:
    held = world.claimed()
    run(conn, transitions.run_cancel("p", world.parent))

    assert world.handle(held, configured("webhook", here)) == {"sent": False, "reason": "void"}
    assert here.got == []


def test_an_attempt_that_lost_its_run_tells_nobody(
    world: World, here: Provider, conn: Conn
) -> None:
    held = world.claimed()
    world.failed(held)
    world.claimed()

    with pytest.raises(LeaseLost):
        world.handle(held, configured("webhook", here))

    assert here.got == []
    assert not one(conn, "select count(*) from semel.approval_token")


def test_an_approval_that_is_not_there_is_told_to_nobody(world: World, here: Provider) -> None:
    held = world.claimed()
    other = Held(
        id=held.id,
        project="p",
        worker="w",
        fence=held.fence,
        input={"approval_id": str(uuid4()), "recipient": "bob"},
    )

    assert world.handle(other, configured("webhook", here)) == {
        "sent": False,
        "reason": "unknown",
    }


def test_a_recipient_that_is_no_notifier_ends_the_run(world: World, conn: Conn) -> None:
    with pytest.raises(NotifyRefused, match="no notifier is called 'bob'"):
        world.handle(world.claimed())

    assert not one(conn, "select count(*) from semel.approval_token")


@pytest.mark.parametrize("told", [None, [], {}, "x", {"approval_id": 1, "recipient": "bob"}])
def test_an_input_that_names_no_approval_ends_the_run(world: World, told: Any) -> None:
    held = Held(id=uuid4(), project="p", worker="w", fence=1, input=told)

    with pytest.raises(NotifyRefused, match="names no approval"):
        world.handle(held)


@pytest.mark.parametrize(
    ("kind", "more", "environ", "sentence"),
    [
        ("telegram", {}, {}, "[notifiers.bob] token: env:TOKEN is empty or not there"),
        ("telegram", {}, {"TOKEN": "secret/../x"}, "no bot token"),
        ("line", {}, {"TOKEN": "x"}, "[notifiers.bob] to: env:TO is empty or not there"),
        ("webhook", {"secret": "env:S"}, {"S": "hunter2"}, "openssl rand -base64 32"),
        ("webhook", {"secret": "env:S"}, {"S": "whsec_AAAA"}, "24 to 64 random bytes"),
        (
            "slack",
            {"api": "env:API"},
            {"TOKEN": "x", "API": "http://u:p@h"},
            "user or password",
        ),
    ],
)
def test_a_secret_that_is_not_there_stops_the_worker_at_its_start(
    kind: str, more: dict[str, str], environ: dict[str, str], sentence: str, here: Provider
) -> None:
    settings = Settings(notifiers={"bob": configured(kind, here, **more)})

    with pytest.raises(BadConfig) as refused:
        notify.notify_agent(settings, link.Link("", name="test"), environ)

    assert sentence in str(refused.value)
    assert not any(value in str(refused.value) for value in environ.values() if len(value) > 1)


def test_the_run_ends_with_the_code_of_notifications(here: Provider) -> None:
    here.answer(401, {"ok": False, "description": "Unauthorized"})

    with pytest.raises(NotifyRefused) as refused:
        send(configured("telegram", here))

    ended = of_error(refused.value)
    assert (ended.code, ended.retryable) == ("E-NOTIFY-001", False)
    assert "0123456789abcdef" not in ended.reason
    assert "ABC-def" not in ended.reason
