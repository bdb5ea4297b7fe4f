"""What providers' own libraries sign we verify, and what they refuse we refuse."""

import base64
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from random import Random
from typing import Any

import pytest
import stripe
from aiogram.webhook.aiohttp_server import SimpleRequestHandler
from linebot.v3.webhook import SignatureValidator
from nacl.signing import SigningKey
from slack_sdk.signature import Clock, SignatureVerifier
from standardwebhooks import Webhook

import signing
from semel.edges.channel import Request
from semel.edges.channels import READERS
from semel.errors import NotAuthentic
from signing import NOW, Headers, source

COUNT = 1000
AT = datetime.fromtimestamp(NOW, UTC)


def passes(channel: str, secret: str, body: bytes, headers: Headers) -> bool:
    request = Request(method="POST", headers=headers, body=body, local=False, now=AT)
    try:
        READERS[channel](request, source(channel, secret))
    except NotAuthentic:
        return False
    return True


def cases() -> Iterator[tuple[Random, str, bytes]]:
    """Random secrets and JSON bodies with any text in them; every fourth body is changed later."""
    some = Random(7)
    letters = 'aZ09-_ +/=äß秘密😀"\\'
    for n in range(COUNT):
        secret = "".join(some.choices(letters, k=some.randint(1, 60))).strip() or "s"
        text = "".join(some.choices(letters + "\n\t{}", k=some.randint(0, 300)))
        body = json.dumps({"id": f"evt_{n}", "x": text}, ensure_ascii=bool(n % 2)).encode()
        yield some, secret, body


#: Whether a library passes a body with the headers that it signed.
Passes = Callable[[bytes], object]


def agree(
    channel: str, oracle: Callable[[Random, str, bytes], tuple[str, Headers, Passes]]
) -> None:
    """*oracle* signs, and so judges each body as we do: its own, and one of another byte."""
    for some, told, body in cases():
        secret, headers, its = oracle(some, told, body)
        assert judged(its, body)
        assert passes(channel, secret, body, headers), (secret, body)
        at = some.randrange(len(body))
        other = body[:at] + bytes([body[at] ^ (1 << some.randrange(8))]) + body[at + 1 :]
        assert not judged(its, other)
        assert not passes(channel, secret, other, headers), (secret, body, at)


def judged(its: Passes, body: bytes) -> bool:
    """What a library says of *body*, in whatever way it refuses."""
    try:
        return its(body) is not False
    except Exception:  # noqa: BLE001 - each library has its own
        return False


def test_stripe_s_signatures_are_ours() -> None:
    def oracle(_some: Random, secret: str, body: bytes) -> tuple[str, Headers, Passes]:
        sign: Any = (
            stripe.WebhookSignature._compute_signature
        )  # what generate_signature_header calls
        line = f"t={int(NOW)},v1={sign(f'{int(NOW)}.{body.decode()}', secret)}"
        verify = stripe.WebhookSignature.verify_header
        return (
            secret,
            [("stripe-signature", line)],
            lambda told: verify(told.decode(), line, secret, None),
        )

    agree("stripe", oracle)


def test_standard_webhooks_signatures_are_ours() -> None:
    def oracle(some: Random, _secret: str, body: bytes) -> tuple[str, Headers, Passes]:
        secret = "whsec_" + base64.b64encode(some.randbytes(some.randint(24, 64))).decode()
        hook = Webhook(secret)
        line = hook.sign("msg_1", AT, body.decode())
        headers = [
            ("webhook-id", "msg_1"),
            ("webhook-timestamp", str(int(NOW))),
            ("webhook-signature", line),
        ]
        # Its verify asks the clock of today; what it would sign is what it would pass.
        return secret, headers, lambda told: hook.sign("msg_1", AT, told.decode()) == line

    agree("standard", oracle)


def test_slack_s_signatures_are_ours() -> None:
    class Still(Clock):
        def now(self) -> float:
            return NOW

    def oracle(_some: Random, secret: str, body: bytes) -> tuple[str, Headers, Passes]:
        verifier = SignatureVerifier(secret, Still())
        line = verifier.generate_signature(timestamp=str(int(NOW)), body=body)
        assert line is not None
        headers = [
            ("x-slack-request-timestamp", str(int(NOW))), ("x-slack-signature", line),
        ]  # fmt: skip
        return secret, headers, lambda told: verifier.is_valid(told, str(int(NOW)), line)

    agree("slack", oracle)


def test_what_we_sign_for_line_its_library_verifies() -> None:
    def oracle(_some: Random, secret: str, body: bytes) -> tuple[str, Headers, Passes]:
        headers = signing.line(secret, body)
        verify = SignatureValidator(secret).validate
        return secret, headers, lambda told: verify(told.decode(), headers[0][1])

    agree("line", oracle)


@pytest.mark.parametrize("channel", ["discord", "standard"])
def test_ed25519_signatures_of_another_library_are_ours(channel: str) -> None:
    def oracle(some: Random, _secret: str, body: bytes) -> tuple[str, Headers, Passes]:
        key = SigningKey(some.randbytes(32))
        public = key.verify_key.encode()
        at = str(int(NOW))
        before = (at if channel == "discord" else f"msg_1.{at}.").encode()
        signature = key.sign(before + body).signature

        def its(told: bytes) -> object:
            return key.verify_key.verify(before + told, signature)

        if channel == "discord":
            return (
                public.hex(),
                [("x-signature-ed25519", signature.hex()), ("x-signature-timestamp", at)],
                its,
            )
        line = base64.b64encode(signature).decode()
        headers = [
            ("webhook-id", "msg_1"), ("webhook-timestamp", at),
            ("webhook-signature", f"v1a,{line}"),
        ]  # fmt: skip
        return "whpk_" + base64.b64encode(public).decode(), headers, its

    agree(channel, oracle)


@pytest.mark.parametrize("channel", ["gitea", "github"])
def test_what_is_signed_once_more_and_apart_is_ours(channel: str) -> None:
    """Neither publishes a library: what verifies them is held against what the tests sign."""

    def oracle(_some: Random, secret: str, body: bytes) -> tuple[str, Headers, Passes]:
        headers = getattr(signing, channel)(secret, body)
        return secret, headers, lambda told: getattr(signing, channel)(secret, told) == headers

    agree(channel, oracle)


def test_telegram_s_token_is_judged_as_by_another_library() -> None:
    letters = "ABCXYZabcxyz0189_-"
    bot: Any = None
    for some, _, body in cases():
        secret = "".join(some.choices(letters, k=some.randint(1, 256)))
        at = some.randrange(len(secret))
        changed = secret[:at] + some.choice(letters) + secret[at + 1 :]
        for told in (secret, changed, secret[:-1], secret + "a", secret.swapcase()):
            handler = SimpleRequestHandler(dispatcher=bot, bot=bot, secret_token=secret)
            header = [("x-telegram-bot-api-secret-token", told)]
            wanted = handler.verify_secret(told, bot)
            assert passes("telegram", secret, body, header) is wanted, (secret, told)


def test_every_published_vector_passes() -> None:
    def at(seconds: int) -> datetime:
        return datetime.fromtimestamp(seconds, UTC)

    vectors: list[tuple[str, str, bytes, Headers, datetime]] = [
        (
            "github", "It's a Secret to Everybody", b"Hello, World!",
            [("x-hub-signature-256", "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17")],
            AT,
        ),
        (
            "line", "channel_secret", b"bodybodybodybody",
            [("x-line-signature", "/gg9a+LvFevTH1sd7XCQycD7tsWclCsInj7MhBHxN7k=")], AT,
        ),
        (
            "standard", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", b'{"test": 2432232314}',
            [
                ("webhook-id", "msg_p5jXN8AQM9LWM0D4loKWxJek"), ("webhook-timestamp", "1614265330"),
                ("webhook-signature", "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="),
            ],
            at(1614265330),
        ),
        (
            "standard", "whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4=", b'{"test": 2432232314}',
            [
                ("webhook-id", "msg_p5jXN8AQM9LWM0D4loKWxJek"), ("webhook-timestamp", "1614265330"),
                ("webhook-signature", "v1a,hnO3f9T8Ytu9HwrXslvumlUpqtNVqkhqw/enGzPCXe5BdqzCInXqYXFymVJaA7AZdpXwVLPo3mNl8EM+m7TBAg=="),
            ],
            at(1614265330),
        ),
        (
            "slack", "8f742231b10e8888abcd99yyyzzz85a5",
            (b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow"
            b"&channel_id=G8PSS9T3V&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner"
            b"&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com"
            b"%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN"
            b"&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"),
            [
                ("x-slack-request-timestamp", "1531420618"),
                ("x-slack-signature", "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503"),
            ],
            at(1531420618),
        ),
    ]  # fmt: skip
    for channel, secret, body, headers, moment in vectors:
        request = Request(method="POST", headers=headers, body=body, local=False, now=moment)
        READERS[channel](request, source(channel, secret))
        with pytest.raises(NotAuthentic):
            READERS[channel](request, source(channel, secret[:-2] + "A="))
