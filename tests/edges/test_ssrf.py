"""The guard: a notifier's setting leads to public addresses only, whatever tricks it plays."""

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import Iterator, Sequence
from typing import Any

import httpcore
import pytest

from provider import CERTIFICATE, Provider, provider
from semel.config.url import Url
from semel.edges.notifiers.guard import ADDRESSES_MAX, Guard, resolved
from semel.edges.notifiers.notifier import Answer, NotifyLater, NotifyRefused
from semel.edges.notifiers.post import ANSWER_BYTES_MAX, Guarded, Post
from semel.errors import BadConfig

PUBLIC = "93.184.216.34"


class Names:
    """A name server that answers what it is told, one answer after the other."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self.asked: list[str] = []
        self._answers = list(answers)

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]


class Wire(httpcore.AsyncNetworkBackend):
    """Leads every address to one port of this machine, and keeps which one was asked for."""

    def __init__(self, port: int, *, dead: Sequence[str] = ()) -> None:
        self.connected: list[str] = []
        self._port = port
        self._dead = dead
        self._real = httpcore.AnyIOBackend()

    async def connect_tcp(
        self, host: str, port: int, *rest: Any, **more: Any
    ) -> httpcore.AsyncNetworkStream:
        self.connected.append(host)
        if host in self._dead:
            raise httpcore.ConnectError("nobody there")
        return await self._real.connect_tcp("127.0.0.1", self._port)


@pytest.fixture
def here() -> Iterator[Provider]:
    with provider() as running:
        running.answer(200)
        yield running


def posted(post: Post, text: str) -> Answer:
    url = Url.read("url", text, http=True)
    return asyncio.run(post(url, {}, b"{}"))


@pytest.mark.parametrize(
    "address",
    [
        "0.0.0.0",
        "10.0.0.1",
        "100.64.0.1",
        "100.100.100.200",
        "127.0.0.1",
        "127.255.255.254",
        "168.63.129.16",
        "169.254.169.254",
        "172.16.0.1",
        "172.31.255.255",
        "192.0.0.192",
        "192.0.2.1",
        "192.88.99.1",
        "192.168.1.1",
        "198.18.0.1",
        "198.51.100.1",
        "203.0.113.1",
        "224.0.0.1",
        "239.255.255.255",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::127.0.0.1",
        "::ffff:127.0.0.1",
        "::ffff:169.254.169.254",
        "64:ff9b::10.0.0.1",
        "64:ff9b::169.254.169.254",
        "64:ff9b:1::1",
        "100::1",
        "2001::1",
        "2001:db8::1",
        "2002:7f00:1::",
        "2002:a9fe:a9fe::1",
        "3fff::1",
        "5f00::1",
        "fc00::1",
        "fd00:ec2::254",
        "fe80::1",
        "fe80::1%lo",
        "fec0::1",
        "ff02::1",
        "ff0e::1",
    ],
)
def test_an_address_that_is_not_public_is_refused(address: str) -> None:
    with pytest.raises(NotifyRefused, match="E-NOTIFY-001"):
        asyncio.run(Guard(resolve=Names([address])).addresses("x.test", 443))


@pytest.mark.parametrize(
    "address",
    [
        "93.184.216.34",
        "1.1.1.1",
        "172.32.0.1",
        "100.128.0.1",
        "192.0.1.1",
        "2606:4700::1",
        "2a00:1450::1",
        "::ffff:8.8.8.8",
        "64:ff9b::8.8.8.8",
        "2002:808:808::1",
    ],
)
def test_a_public_address_passes(address: str) -> None:
    assert Guard().allows(address)


@pytest.mark.parametrize(
    "host",
    [
        "2130706433",
        "0177.0.0.1",
        "0x7f.0.0.1",
        "0x7f000001",
        "127.1",
        "0",
        "localhost",
        "::1",
        "::ffff:127.0.0.1",
        "::ffff:7f00:1",
    ],
)
def test_another_spelling_of_this_machine_is_refused(host: str) -> None:
    with pytest.raises(NotifyRefused, match="not public"):
        asyncio.run(Guard(resolve=resolved).addresses(host, 80))


def test_a_name_that_also_leads_to_a_private_address_is_refused_whole() -> None:
    with pytest.raises(NotifyRefused, match=r"10\.0\.0\.7"):
        asyncio.run(Guard(resolve=Names([PUBLIC, "10.0.0.7"])).addresses("x.test", 443))


def test_own_networks_are_allowed_by_true_and_metadata_services_are_not() -> None:
    guard = Guard(True)

    for own in ("127.0.0.1", "10.1.2.3", "192.168.0.1", "100.64.0.1", "::1", "fd12::1", PUBLIC):
        assert guard.allows(own), own
    for never in ("169.254.169.254", "100.100.100.200", "fd00:ec2::254", "0.0.0.0", "fe80::1"):
        assert not guard.allows(never), never
    assert not guard.allows("::ffff:169.254.169.254")


def test_named_networks_are_allowed_and_no_others() -> None:
    guard = Guard([ipaddress.ip_network("10.1.0.0/16"), ipaddress.ip_network("fd12::/16")])

    assert guard.allows("10.1.2.3")
    assert guard.allows("::ffff:10.1.2.3")
    assert guard.allows("64:ff9b::10.1.2.3")
    assert guard.allows("fd12::1")
    assert not guard.allows("10.2.0.1")
    assert not guard.allows("127.0.0.1")
    assert guard.allows(PUBLIC)


def test_the_refusal_names_the_address_and_what_would_allow_it() -> None:
    with pytest.raises(NotifyRefused) as refused:
        asyncio.run(Guard(resolve=Names(["::ffff:10.0.0.7"])).addresses("x.test", 443))

    assert 'allow_private = ["10.0.0.7"]' in str(refused.value)


def test_a_name_is_looked_up_once_and_its_judged_address_connected_to(here: Provider) -> None:
    names, wire = Names([PUBLIC], ["127.0.0.1"]), Wire(here.port)

    answer = posted(Post(Guard(resolve=names), inner=wire), "http://hooks.example.test/x")

    assert answer.status == 200
    assert names.asked == ["hooks.example.test"]
    assert wire.connected == [PUBLIC]
    assert here.got[0].headers["host"] == "hooks.example.test"


def test_a_name_that_answers_otherwise_the_next_time_is_refused_then(here: Provider) -> None:
    wire = Wire(here.port)
    post = Post(Guard(resolve=Names([PUBLIC], ["127.0.0.1"])), inner=wire)

    posted(post, "http://hooks.example.test/x")
    with pytest.raises(NotifyRefused, match="not public"):
        posted(post, "http://hooks.example.test/x")

    assert (len(here.got), wire.connected) == (1, [PUBLIC])


def test_a_redirect_to_this_machine_is_answered_and_never_followed(here: Provider) -> None:
    here.answers.clear()
    here.answer(302, Location=f"{here.url}/admin")

    answer = posted(
        Post(Guard(resolve=Names([PUBLIC])), inner=Wire(here.port)), "http://x.test/"
    )

    assert answer.status == 302
    assert [got.path for got in here.got] == ["/"]


def test_a_proxy_of_the_environment_is_not_used(
    here: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")

    assert posted(Post(Guard(True)), here.url).status == 200


def test_a_dead_address_is_passed_over(here: Provider) -> None:
    wire = Wire(here.port, dead=["1.1.1.1"])

    answer = posted(
        Post(Guard(resolve=Names(["1.1.1.1", PUBLIC])), inner=wire), "http://x.test/"
    )

    assert (answer.status, wire.connected) == (200, ["1.1.1.1", PUBLIC])


def test_a_name_with_many_addresses_is_tried_at_a_few() -> None:
    many = [f"93.184.216.{n}" for n in range(1, 50)]

    assert len(asyncio.run(Guard(resolve=Names(many)).addresses("x.test", 1))) == ADDRESSES_MAX


@pytest.mark.parametrize("answer", [[], None])
def test_a_name_without_an_address_may_have_one_later(answer: list[str] | None) -> None:
    async def nobody(host: str, port: int) -> Sequence[str]:
        if answer is None:
            raise socket.gaierror(socket.EAI_AGAIN, "try again")
        return answer

    with pytest.raises(NotifyLater, match="cannot be reached"):
        posted(Post(Guard(resolve=nobody)), "https://x.test/")


def test_a_name_that_no_resolver_can_take_is_none() -> None:
    with pytest.raises(NotifyLater):
        posted(Post(Guard()), f"https://{'a' * 64}.test/")


def test_nothing_but_tcp_is_connected_to() -> None:
    with pytest.raises(NotImplementedError):
        asyncio.run(Guarded(Guard(True)).connect_unix_socket("/tmp/x"))


def test_an_answer_without_an_end_is_read_to_its_limit(here: Provider) -> None:
    here.answers.clear()
    here.answer(200, b"x" * ANSWER_BYTES_MAX, Content_Length="999999999")  # and never the rest

    assert len(posted(Post(Guard(True)), here.url).body) == ANSWER_BYTES_MAX


# -- certificates ---------------------------------------------------------------------------


def test_the_certificate_is_held_to_the_name_and_not_to_the_address() -> None:
    trust = ssl.create_default_context(cafile=str(CERTIFICATE))
    with provider(tls=True) as server:
        server.answer(204)
        post = Post(Guard(resolve=Names([PUBLIC])), inner=Wire(server.port), trust=trust)

        assert posted(post, "https://hooks.example.test/x").status == 204
        with pytest.raises(NotifyLater, match="its certificate is not trusted"):
            posted(post, "https://other.example.test/x")
        assert [got.path for got in server.got] == ["/x"]


def test_a_certificate_of_nobody_is_not_trusted() -> None:
    with provider(tls=True) as server:
        post = Post(Guard(resolve=Names([PUBLIC])), inner=Wire(server.port))

        with pytest.raises(NotifyLater, match="its certificate is not trusted"):
            posted(post, "https://hooks.example.test/x")


# -- URLs -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("ftp://x.test/", "no web address"),
        ("file:///etc/passwd", "no web address"),
        ("gopher://x.test/", "no web address"),
        ("//x.test/", "no web address"),
        ("x.test", "no web address"),
        ("", "no web address"),
        ("http://x.test/", "begins with http"),
        ("https://user:pass@x.test/", "user or password"),
        ("https://x.test@127.0.0.1/", "user or password"),
        ("https://@x.test/", "user or password"),
        ("https:///path", "no usable host"),
        ("https://x.test:0/", "no usable host"),
        ("https://x.test:99999/", "no URL"),
        ("https://[::1/", "no URL"),
        ("https://[fe80::1%25eth0]/", "no usable host"),
        ("https://[::g]/", "no"),
        ("https://x.test/#secret", "has a #"),
        ("https://x.test\\@127.0.0.1/", "backslash"),
        ("https://x.test/a b", "space"),
        ("https://x.test/\r\nHost: y", "space"),
        ("https://x.test/\t", "space"),
        ("https://①②⑦.0.0.1/", "beyond ASCII"),
        ("https://exämple.test/", "xn--"),
        ("https://-x.test/", "no usable host"),
        ("https://x_.test,y.test/", "no usable host"),
    ],
)
def test_a_url_that_may_be_read_in_two_ways_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(BadConfig) as refused:
        Url.read("[notifiers.n] url", text)

    assert sentence in str(refused.value)
    assert "pass" not in str(refused.value).replace("password", "")


@pytest.mark.parametrize(
    ("text", "host", "port", "target", "authority"),
    [
        ("https://X.test", "x.test", 443, "/", "x.test"),
        ("https://x.test:8443/a?b=c", "x.test", 8443, "/a?b=c", "x.test:8443"),
        ("https://x.test?b", "x.test", 443, "/?b", "x.test"),
        ("https://[2606:4700::1]:444/", "2606:4700::1", 444, "/", "[2606:4700::1]:444"),
        ("https://1.1.1.1/", "1.1.1.1", 443, "/", "1.1.1.1"),
    ],
)
def test_a_url_is_read_into_what_is_connected_to(
    text: str, host: str, port: int, target: str, authority: str
) -> None:
    url = Url.read("url", text)

    assert (url.host, url.port, url.target, url.authority) == (host, port, target, authority)
