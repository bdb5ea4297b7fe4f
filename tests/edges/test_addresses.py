"""An address is believed as far as the settings trust whoever tells it, and opens nothing else."""

import ipaddress

import pytest

from semel.config.limits import networks
from semel.edges.address import is_within, sender

TRUSTED = networks(("10.0.0.0/8", "fd00::/8"))


def told(peer: str | None, *lines: str) -> str | None:
    headers = [(b"x-forwarded-for", line.encode("latin-1")) for line in lines]
    found = sender(peer, headers, TRUSTED)
    return None if found is None else str(found)


@pytest.mark.parametrize(
    ("peer", "lines", "who"),
    [
        ("203.0.113.5", [], "203.0.113.5"),
        ("203.0.113.5", ["10.0.0.1"], "203.0.113.5"),  # who is no proxy says nothing
        ("10.0.0.1", ["203.0.113.5"], "203.0.113.5"),
        ("10.0.0.1", ["198.51.100.1, 203.0.113.5"], "203.0.113.5"),
        ("10.0.0.1", ["198.51.100.1, 203.0.113.5, 10.0.0.2"], "203.0.113.5"),
        ("10.0.0.1", ["198.51.100.1", "203.0.113.5"], "203.0.113.5"),  # lines are one list
        ("10.0.0.1", ["x, 203.0.113.5"], "203.0.113.5"),  # further left nobody looks
        ("10.0.0.1", ["203.0.113.5:4711"], "203.0.113.5"),
        ("10.0.0.1", ["[2001:db8::1]:443"], "2001:db8::1"),
        ("10.0.0.1", ["[2001:db8::1]"], "2001:db8::1"),
        ("10.0.0.1", ["2001:db8::1"], "2001:db8::1"),
        ("::ffff:10.0.0.1", ["::ffff:203.0.113.5"], "203.0.113.5"),
        ("fd00::1", ["fd00::2"], "fd00::2"),  # only proxies: the furthest of them
        ("10.0.0.1", [], "10.0.0.1"),
        ("10.0.0.1", ["203.0.113.5, x"], None),
        ("10.0.0.1", ["203.0.113.5,"], None),
        ("10.0.0.1", [""], None),
        ("10.0.0.1", ["203.0.113.5, 10.0.0.256"], None),
        ("10.0.0.1", ["for=203.0.113.5"], None),
        ("10.0.0.1", ["unknown"], None),
        ("10.0.0.1", ["203.0.113.05"], None),
        ("10.0.0.1", ["1"], None),
        ("10.0.0.1", ["²03.0.113.5"], None),
        ("fe80::1%eth0", [], "fe80::1"),
        (None, ["203.0.113.5"], None),
        ("testclient", ["203.0.113.5"], None),
        ("10.0.0.1", [", ".join(["203.0.113.5", *["10.0.0.2"] * 31])], "203.0.113.5"),
        ("10.0.0.1", [", ".join(["203.0.113.5", *["10.0.0.2"] * 99])], None),
    ],
)
def test_the_sender_is_the_first_from_the_right_that_is_no_proxy(
    peer: str | None, lines: list[str], who: str | None
) -> None:
    assert told(peer, *lines) == who


def test_other_headers_say_nothing() -> None:
    for name in (b"forwarded", b"x-real-ip", b"cf-connecting-ip", b"x-forwarded-host"):
        found = sender("10.0.0.1", [(name, b"for=203.0.113.5")], TRUSTED)
        assert str(found) == "10.0.0.1"


def test_a_mapped_address_is_in_the_network_of_its_kind() -> None:
    mapped = sender("::ffff:203.0.113.5", [], ())
    assert mapped is not None
    assert is_within(mapped, networks(("203.0.113.0/24",)))
    assert not is_within(mapped, networks(("::/0",)))
    assert not is_within(ipaddress.ip_address("2001:db8::1"), networks(("0.0.0.0/0",)))
