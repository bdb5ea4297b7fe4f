"""Who signs with a live secret is let in; anything else is refused, whatever it looks like."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

import signing
from semel.config import Source
from semel.config.hmac import HmacSettings
from semel.edges.channel import Reading, Reply, Request
from semel.edges.channels import READERS
from semel.errors import NotAuthentic
from signing import NOW, PUBLIC_HEX, PUBLIC_WHPK, WHSEC, Headers, source

EVENT = {
    "discord": b'{"id":"1","application_id":"2","type":2}',
    "gitea": b'{"ref":"x"}',
    "github": b'{"ref":"x"}',
    "line": b'{"destination":"U","events":[{"webhookEventId":"1","mode":"active"}]}',
    "slack": b'{"type":"event_callback","event_id":"Ev1"}',
    "standard": b'{"type":"x"}',
    "stripe": b'{"id":"evt_1","object":"event"}',
}
SECRETS = {"discord": PUBLIC_HEX, "standard": WHSEC}
SIGN: dict[str, Callable[[str, bytes], Headers]] = {
    name: getattr(signing, name) for name in EVENT
}
CHANNELS = sorted(EVENT)


def secret_of(channel: str) -> str:
    return SECRETS.get(channel, "s3cret")


def read(
    told: Source, body: bytes, headers: Headers, at: float = NOW, method: str = "POST"
) -> Reading:
    now = datetime.fromtimestamp(at, UTC)
    request = Request(method=method, headers=headers, body=body, local=True, now=now)
    return READERS[told.channel](request, told)


def ids(reading: Any) -> list[str | None]:
    offers = reading.offers if isinstance(reading, Reply) else reading
    return [offer.id for offer in offers]


@pytest.mark.parametrize("channel", CHANNELS)
def test_each_of_two_live_secrets_is_enough(channel: str) -> None:
    right = secret_of(channel)
    wrong = {"discord": "ab" * 32, "standard": "whsec_" + "A" * 32}.get(channel, "other")
    headers = SIGN[channel](right, EVENT[channel])
    for pair in ((right, wrong), (wrong, right)):
        assert ids(read(source(channel, *pair), EVENT[channel], headers)) != [None]
    with pytest.raises(NotAuthentic):
        read(source(channel, wrong), EVENT[channel], headers)


@pytest.mark.parametrize("channel", CHANNELS)
def test_a_changed_byte_of_body_or_signature_is_refused(channel: str) -> None:
    told, body = source(channel, secret_of(channel)), EVENT[channel]
    headers = SIGN[channel](secret_of(channel), body)
    with pytest.raises(NotAuthentic):
        read(told, body + b" ", headers)
    for n, (name, value) in enumerate(headers):
        if "signature" in name and "timestamp" not in name:
            changed = value[:-3] + ("aaa" if value[-3:] != "aaa" else "bbb")
            with pytest.raises(NotAuthentic):
                read(told, body, [*headers[:n], (name, changed), *headers[n + 1 :]])


@pytest.mark.parametrize("channel", CHANNELS)
@pytest.mark.parametrize(
    "value", ["", " ", "sha256=", "v0=", "t=1", "v1=", "v1,", "é", "\x00", "=" * 5000, "0" * 64]
)
def test_a_signature_that_is_none_is_refused(channel: str, value: str) -> None:
    told, body = source(channel, secret_of(channel)), EVENT[channel]
    headers = [
        (name, value if "signature" in name and "timestamp" not in name else kept)
        for name, kept in SIGN[channel](secret_of(channel), body)
    ]
    with pytest.raises(NotAuthentic):
        read(told, body, headers)


@pytest.mark.parametrize("channel", CHANNELS)
def test_a_signature_header_that_is_absent_or_there_twice_is_refused(channel: str) -> None:
    told, body = source(channel, secret_of(channel)), EVENT[channel]
    headers = SIGN[channel](secret_of(channel), body)
    signed = [each for each in headers if "signature" in each[0] and "timestamp" not in each[0]]
    with pytest.raises(NotAuthentic):
        read(told, body, [each for each in headers if each not in signed])
    with pytest.raises(NotAuthentic):
        read(told, body, [*headers, *signed])


@pytest.mark.parametrize("channel", ["gitea", "github", "line", "slack", "stripe"])
def test_a_secret_need_not_be_ascii(channel: str) -> None:
    key = "gehëim-秘密"
    headers = SIGN[channel](key, EVENT[channel])
    assert ids(read(source(channel, key), EVENT[channel], headers)) != [None]
    with pytest.raises(NotAuthentic):
        read(source(channel, "geheim"), EVENT[channel], headers)


@pytest.mark.parametrize("channel", ["slack", "standard", "stripe"])
@pytest.mark.parametrize(
    ("off", "passes"), [(0, True), (300, True), (301, False), (10**9, False)]
)
def test_a_signature_is_refused_outside_its_window_before_and_after(
    channel: str, off: float, *, passes: bool
) -> None:
    told, body = source(channel, secret_of(channel)), EVENT[channel]
    headers = SIGN[channel](secret_of(channel), body)
    for at in (NOW + off, NOW - off):
        if passes:
            read(told, body, headers, at)
        else:
            with pytest.raises(NotAuthentic, match="window"):
                read(told, body, headers, at)


@pytest.mark.parametrize("channel", ["slack", "standard"])
@pytest.mark.parametrize("told", ["", "x", "1e9", "-1", "1.5", "٣", "9" * 400, "²", "1 2"])
def test_a_time_that_is_none_is_refused(channel: str, told: str) -> None:
    body = EVENT[channel]
    headers = [
        (name, told.encode().decode("latin-1") if "timestamp" in name else value)
        for name, value in SIGN[channel](secret_of(channel), body)
    ]
    with pytest.raises(NotAuthentic):
        read(source(channel, secret_of(channel)), body, headers)


def test_gitea_signs_the_json_of_a_form_and_of_a_query() -> None:
    body = EVENT["gitea"]
    headers = [*signing.gitea("s3cret", body), signing.FORM]
    told = source("gitea", "s3cret")
    assert ids(read(told, signing.payload(body), headers)) == ["u-1"]
    for raw in (b"payload=", b"other=1", signing.payload(body) * 2, signing.payload(b"{}")):
        with pytest.raises(NotAuthentic):
            read(told, raw, headers)


def test_gitea_with_empty_headers_is_refused_whatever_family_they_are_of() -> None:
    body = EVENT["gitea"]
    for name in ("x-gitea-signature", "x-forgejo-signature", "x-gogs-signature"):
        with pytest.raises(NotAuthentic):
            read(source("gitea", "s3cret"), body, [(name, "")])
        assert read(source("gitea", "s3cret"), body, [(name, signing.hexed("s3cret", body))])


def test_github_signs_the_bytes_of_a_form() -> None:
    body = signing.payload(EVENT["github"])
    headers = [*signing.github("s3cret", body), signing.FORM]
    [offer] = read(source("github", "s3cret"), body, headers)  # type: ignore[misc]
    assert offer.input == {"event": "push", "delivery": "g-1", "payload": {"ref": "x"}}


def test_stripe_accepts_any_of_several_signatures_and_ignores_other_schemes() -> None:
    body = EVENT["stripe"]
    [(name, line)] = signing.stripe("s3cret", body)
    both = line.replace(",v1=", ",v0=abc,v1=" + "0" * 64 + ",v1=")
    assert read(source("stripe", "s3cret"), body, [(name, both)])
    for wrong in (line.replace("v1", "v0"), "t=1," + line, line.replace("t=", "t=x"), "v1=0"):
        with pytest.raises(NotAuthentic):
            read(source("stripe", "s3cret"), body, [(name, wrong)])


def test_standard_accepts_any_of_several_signatures_of_both_versions() -> None:
    body, name = EVENT["standard"], "webhook-signature"
    ours = dict(signing.standard(WHSEC, body))
    theirs = dict(signing.standard(PUBLIC_WHPK, body))
    both = [*ours.items(), (name, "")][:-1]
    line = f"v2,xyz v1,AAAA v1a,AAAA v1 , {ours[name]} {theirs[name]}"
    headers = [(each, line if each == name else value) for each, value in both]
    for key in (WHSEC, PUBLIC_WHPK):
        assert ids(read(source("standard", key), body, headers)) == ["msg_1"]
    for version in (ours, theirs):
        crossed = PUBLIC_WHPK if version is ours else WHSEC
        with pytest.raises(NotAuthentic):
            read(source("standard", crossed), body, list(version.items()))


def test_standard_may_be_called_svix() -> None:
    body = EVENT["standard"]
    headers = [
        (name.replace("webhook", "svix"), value)
        for name, value in signing.standard(WHSEC, body, name="msg_2")
    ]
    assert ids(read(source("standard", WHSEC), body, headers)) == ["msg_2"]
    mixed = [*headers[:2], ("webhook-signature", headers[2][1])]
    with pytest.raises(NotAuthentic):
        read(source("standard", WHSEC), body, mixed)


def test_a_key_that_cannot_be_one_proves_nothing() -> None:
    for channel in ("standard", "discord"):
        body = EVENT[channel]
        for key in ("not base64!", "é", "whpk_AAAA", "ab"):
            headers = SIGN[channel](secret_of(channel), body)
            with pytest.raises(NotAuthentic):
                read(source(channel, key), body, headers)


def hmac_source(**changes: Any) -> Source:
    how = HmacSettings(source="hmac", **({"header": "X-Signature"} | changes))
    return source("hmac", "s3cret", hmac=how)


def test_hmac_is_verified_as_the_settings_say() -> None:
    body = b'{"id":7}'
    assert read(hmac_source(), body, [("x-signature", signing.hexed("s3cret", body))])
    prefixed = hmac_source(prefix="sha256=")
    assert read(prefixed, body, [("x-signature", "sha256=" + signing.hexed("s3cret", body))])
    encoded = hmac_source(encoding="base64")
    [(_, line)] = signing.line("s3cret", body)
    assert read(encoded, body, [("x-signature", line)])
    assert read(encoded, body, [("x-signature", f"AAAA,{line}")])
    for header in ("", "sha256=", signing.hexed("other", body), "é"):
        with pytest.raises(NotAuthentic):
            read(prefixed, body, [("x-signature", header)])


def test_hmac_signs_an_id_and_a_time_with_the_body() -> None:
    told = hmac_source(
        signed="v0:{id}:{timestamp}:{body}",
        id="header:X-Id",
        timestamp="header:X-Time",
        timestamp_unit="ms",
        event="body:/kind",
        correlation="body:/order/0/id",
    )
    body = json.dumps({"kind": "paid", "order": [{"id": 5}]}).encode()
    at = str(int(NOW * 1000) + 500)
    message = f"v0:e-1:{at}:".encode() + body
    headers = [
        ("x-id", "e-1"), ("x-time", at), ("x-signature", signing.hexed("s3cret", message)),
    ]  # fmt: skip
    [offer] = read(told, body, headers)  # type: ignore[misc]
    assert (offer.id, offer.content, offer.correlation) == ("e-1", None, "5")
    assert offer.input == {"event": "paid", "id": "e-1", "payload": json.loads(body)}
    assert offer.headers == {"x-id": "e-1", "x-time": at}
    for n in range(3):
        with pytest.raises(NotAuthentic):
            read(told, body, [*headers[:n], *headers[n + 1 :]])
    with pytest.raises(NotAuthentic, match="window"):
        read(told, body, headers, NOW + 400)


def test_discord_refuses_each_signature_that_is_made_to_try_it() -> None:
    body = b'{"type":1}'
    headers = signing.discord("", body)
    told = source("discord", PUBLIC_HEX)
    assert read(told, body, headers) == Reply(body=b'{"type":1}', media="application/json")
    for wrong in ("00" * 64, headers[0][1][:-2], headers[0][1] + "00", "zz" * 64, " "):
        with pytest.raises(NotAuthentic):
            read(told, body, [("x-signature-ed25519", wrong), headers[1]])
