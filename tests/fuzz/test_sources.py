"""Whoever says whatever of his address opens nothing, and no event and no route harm one another."""

import ipaddress
import json
from random import Random
from typing import Any

import pytest

import fuzzing
from fuzzing import TIMEOUT, fuzz
from modelling import Tally
from semel.config.limits import networks
from semel.config.routing import read_routing
from semel.edges import address
from semel.edges.channel import REASON_CHARS_MAX, Request
from semel.edges.channels import READERS
from semel.edges.routing import choose, routed
from signing import source

pytestmark = pytest.mark.timeout(TIMEOUT)

TRUSTED = networks(("10.0.0.0/8", "fd00::/8"))
GOOD = ["10.0.0.1", "fd00::1", "203.0.113.5", "::ffff:10.0.0.1", "[2001:db8::1]:443", "unknown"]


def test_an_address_is_believed_of_proxies_alone(record_property: Tally) -> None:
    def case(some: Random) -> None:
        hops = [
            some.choice(GOOD) if some.random() < 0.7 else fuzzing.text(some)
            for _ in range(some.randrange(6))
        ]
        line = ", ".join(hops).encode("utf-8", "replace")
        peer = some.choice(GOOD)
        found = address.sender(peer, [(b"x-forwarded-for", line)], TRUSTED)
        own = address.read(peer)
        if own is None or not address.is_within(own, TRUSTED):
            assert found == own
        elif found is not None:
            said = [address.read(each.strip()) for each in line.decode("latin-1").split(",")]
            assert found in {*said, own}
            # Nothing but proxies stands behind it.
            after = said[len(said) - said[::-1].index(found) :] if found in said else said
            assert all(hop and address.is_within(hop, TRUSTED) for hop in after)
            assert not (isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped)

    record_property("cases", fuzz(case))


def test_every_event_has_one_agent_or_a_reason(record_property: Tally) -> None:
    plain: list[Any] = ["a", 1, True, 0, "", {"prefix": "a"}, ["a", 2, False]]

    def case(some: Random) -> None:
        routes = [
            {
                "agent": f"r{n}",
                "events": some.sample(["*", "a*", "push", "é"], 2),
                "when": {f"/{some.choice(['a', 'b~1c', '0', ''])}": some.choice(plain)},
            }
            for n in range(some.randrange(1, 4))
        ]
        told = read_routing("x", {"route": routes})
        one = source("standard", "k", agent=None, **told)
        body = fuzzing.body(some, [{"type": "push", "a": "a"}, [1], "x"])
        headers = [("webhook-id", "1")]
        request = Request(method="POST", headers=headers, body=body, local=True, admitted=True)
        reading = READERS["standard"](request, one)
        assert isinstance(reading, list)
        [offer] = routed(reading, one)
        assert (offer.agent is None) == (offer.verdict is not None)
        assert offer.reason
        assert len(offer.reason) <= REASON_CHARS_MAX
        assert offer.reason.isprintable()
        value = fuzzing.value(some)
        json.dumps(choose(one, fuzzing.text(some), value).why)

    record_property("cases", fuzz(case))
