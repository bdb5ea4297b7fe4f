"""Routing and limits of a source: what may be written, and what each refusal says to mend."""

from datetime import timedelta
from pathlib import Path

import pytest

from semel.config import Settings, Source, load
from semel.config.kinds import doubts
from semel.config.limits import Rate
from semel.config.routing import Condition, Route
from semel.errors import BadConfig

HOOK = '[sources.hook]\nchannel = "github"\nsecrets = ["env:KEY"]\n'
WITH_AGENT = HOOK + 'agent = "a"\n'


def settings(tmp_path: Path, text: str) -> Settings:
    (tmp_path / "semel.toml").write_text(text)
    return load({"KEY": "k"}, tmp_path)


def source(tmp_path: Path, text: str) -> Source:
    return settings(tmp_path, text).sources["default", "hook"]


ROUTED = """
events = ["push", "pull_*"]
when = { "/payload/repository/full_name" = ["o/a", "o/b"] }

[[sources.hook.route]]
events = ["pull_request"]
when = { "/payload/action" = "opened", "/payload/number" = 7, "/payload/ref" = { prefix = "x" } }
agent = "review"

[[sources.hook.route]]
agent = "rest"
"""


def test_routes_are_read_in_their_order_and_need_no_other_agent(tmp_path: Path) -> None:
    found = source(tmp_path, HOOK + ROUTED)
    assert found.agent is None
    assert found.events == ("push", "pull_*")
    assert found.when == (
        Condition(path="/payload/repository/full_name", values=("o/a", "o/b")),
    )
    assert found.route[1] == Route(agent="rest")
    assert found.route[0].when == (
        Condition(path="/payload/action", values=("opened",)),
        Condition(path="/payload/number", values=(7,)),
        Condition(path="/payload/ref", prefix="x"),
    )


def test_semel_config_shows_them_as_they_are_written(tmp_path: Path) -> None:
    text = HOOK + 'allow = ["10.0.0.0/8"]\nrate = "100 / 60s"\nsilent_after = "1h"\n' + ROUTED
    shown = settings(tmp_path, text).shown()["sources"]["hook"]
    assert shown["route"][1] == {"agent": "rest"}
    assert shown["route"][0]["when"]["/payload/ref"] == {"prefix": "x"}
    assert shown["when"] == [{"path": "/payload/repository/full_name", "is": ["o/a", "o/b"]}]
    assert (shown["allow"], shown["rate"]) == (["10.0.0.0/8"], "100/1m")
    assert (shown["silent_after"], shown["secrets"]) == ("1h", ["env:KEY"])


def test_limits_are_read(tmp_path: Path) -> None:
    text = WITH_AGENT + 'allow = ["10.0.0.0/8", "::1"]\nrate = "100/1m"\nsilent_after = "1h"'
    found = source(tmp_path, text)
    assert found.allow == ("10.0.0.0/8", "::1")
    assert found.rate == Rate(count=100, per=timedelta(minutes=1))
    assert found.silent_after == timedelta(hours=1)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (HOOK, "has no agent: add agent = ..., or routes that have one"),
        (WITH_AGENT + "events = []", "write 1 to 100 event types"),
        (WITH_AGENT + "events = 'push'", 'as in ["push", "issue*"]'),
        (WITH_AGENT + "events = [5]", "write 1 to 100 event types"),
        (WITH_AGENT + "when = 'x'", "it is a table"),
        (WITH_AGENT + "when = {}", "1 to 20 conditions"),
        (WITH_AGENT + 'when = { "payload" = 1 }', "write a JSON pointer"),
        (WITH_AGENT + 'when = { "/a~2" = 1 }', "write a JSON pointer"),
        (WITH_AGENT + 'when = { "/a" = 1.5 }', "write a text, a whole number"),
        (WITH_AGENT + 'when = { "/a" = [] }', "a list of 1 to 100"),
        (WITH_AGENT + 'when = { "/a" = { regex = "x" } }', "there are prefix"),
        (WITH_AGENT + 'when = { "/a" = { prefix = "" } }', "not an empty one"),
        (WITH_AGENT + "route = []", "write 1 to 100 tables"),
        (WITH_AGENT + "route = [{ events = ['x'] }]", "route 1 has no agent"),
        (WITH_AGENT + "route = [{ agent = 'a b' }]", "[sources.hook] agent is 'a b'"),
        (
            WITH_AGENT + "route = [{ agent = 'a' }, { agent = 'b' }]",
            "route 1 takes everything, so no event reaches route 2: move it to the end",
        ),
        (
            WITH_AGENT + "route = [{ agent = 'a', event = ['x'] }]",
            "unknown key 'event' (did you mean 'events'?)",
        ),
        (
            WITH_AGENT.replace("github", "api") + "events = ['x']",
            "api tells no event types; say with when",
        ),
        (
            WITH_AGENT.replace("github", "hmac") + "hmac = { header = 'S' }\nevents = ['x']",
            "nothing says where the type of an event is; add event =",
        ),
        (
            WITH_AGENT.replace("github", "telegram-poll") + 'rate = "1/1m"',
            "nobody sends to it, it asks; leave them out",
        ),
        (WITH_AGENT + 'allow = ["10.0.0.1/8"]', "is no network: write 10.0.0.0/8"),
        (WITH_AGENT + 'allow = ["example.com"]', "as in 203.0.113.0/24 or 2001:db8::/32"),
        (WITH_AGENT + 'allow = ["::ffff:10.0.0.0/104"]', "as in 10.0.0.0/8"),
        (WITH_AGENT + 'rate = "100"', 'as in "100/1m"'),
        (WITH_AGENT + 'rate = "100/m"', "write a number with its unit"),
        (WITH_AGENT + 'rate = "0/1m"', "rate (requests) is 0: 1 to 1000000"),
        (WITH_AGENT + 'silent_after = "5s"', "silent_after is 5s: 1m to 366d"),
        (WITH_AGENT + "[server]\ntrusted_proxies = ['x']", "[server] trusted_proxies: 'x'"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_the_mend(
    tmp_path: Path, text: str, sentence: str
) -> None:
    with pytest.raises(BadConfig) as refused:
        settings(tmp_path, text)
    assert sentence in str(refused.value)


def test_an_event_type_that_nobody_knows_is_doubted_and_not_refused(tmp_path: Path) -> None:
    text = WITH_AGENT + "events = ['pull_requets', 'pull_*', 'zz*']"
    assert doubts(source(tmp_path, text)) == [
        "'pull_requets' (did you mean 'pull_request'?)",
        "'zz*'",
    ]
    assert (
        doubts(source(tmp_path, WITH_AGENT.replace("github", "stripe") + "events = ['x']"))
        == []
    )
