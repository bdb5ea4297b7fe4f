"""The real Alertmanager, alone and as a pair, against a real server: nothing is lost, nothing is doubled."""

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from alertmanagers import Members, Way, alertmanager, needs_it, way_to
from fix_serving import Serve
from fix_world import Conn, one, until

#: What each source meets first, and when its alert is over. A number is answered and goes no further.
FIRST: dict[str, tuple[Any, ...]] = {
    "plain": (),
    "busy": (503, 503),
    "strict": (400,),
    "limited": (429,),
    "lost": ("lose",),
    "repeated": (),
    "growing": (),
    "anew": (),
}
LAST: dict[str, tuple[Any, ...]] = {"busy": (503,), "strict": (400,), "lost": ("lose",)}
SCENARIOS = [*FIRST, "last"]
TOML = "".join(
    f'[sources.{name}]\nchannel = "alertmanager"\nagent = "triage"\nsecrets = ["env:AM_TOKEN"]\n'
    for name in SCENARIOS
)


def config(url: str) -> dict[str, Any]:
    """Each source is a receiver of its own; alerts are grouped by it."""
    return {
        "route": {
            "receiver": "last",
            "group_by": ["scn"],
            "group_wait": "100ms",
            "group_interval": "400ms",
            "repeat_interval": "1h",
            "routes": [
                {
                    "receiver": name,
                    "matchers": [f'scn="{name}"'],
                    "repeat_interval": "1s" if name == "repeated" else "1h",
                }
                for name in SCENARIOS
            ],
        },
        "receivers": [
            {
                "name": name,
                "webhook_configs": [
                    {
                        "url": f"{url}/in/default/{name}",
                        "http_config": {"authorization": {"credentials": "s3cret"}},
                    }
                ],
            }
            for name in SCENARIOS
        ],
    }


class Story:
    """What is told to Alertmanager, and what became of it here."""

    def __init__(self, members: Members, way: Way, conn: Conn) -> None:
        self._members = members
        self.way = way
        self._conn = conn

    def fire(self, scenario: str, name: str = "A", value: int = 95) -> None:
        self._members.fire(value=value, scn=scenario, alertname=name)

    def end(self, scenario: str, name: str = "A") -> None:
        self._members.end(scn=scenario, alertname=name)

    def events(self, source: str) -> list[str]:
        """The changes that made an event, in their order."""
        told = self._conn.execute(
            "select reason from semel.deliveries where source = %s and verdict = 'new'"
            " order by received_at, delivery_id",
            (source,),
        ).fetchall()
        return [
            f"{self.way.names[fingerprint]} {what}"
            for (reason,) in told
            for fingerprint, what in re.findall(r"alert (\w+) (fires|is resolved)", reason)
        ]

    def until(self, source: str, *changes: str) -> None:
        """Wait for just these events of *source*."""
        until(lambda: len(self.events(source)) >= len(changes))
        assert self.events(source) == list(changes)


def verdicts(conn: Conn, source: str) -> Counter[str]:
    rows = conn.execute("select verdict from semel.deliveries where source = %s", (source,))
    return Counter(verdict for (verdict,) in rows)


@needs_it
@pytest.mark.timeout(120)
@pytest.mark.parametrize("count", [1, 2], ids=["alone", "a_pair"])
def test_every_change_is_one_event_whatever_its_notifications_met(
    tmp_path: Path, serving: Serve, conn: Conn, count: int
) -> None:
    server = serving(TOML, AM_TOKEN="s3cret")
    with way_to(server.url) as way, alertmanager(tmp_path, config(way.url), count) as members:
        story = Story(members, way, conn)
        for name, fates in FIRST.items():
            way.fates(f"/in/default/{name}", *fates)
            story.fire(name)
        for name in FIRST:
            story.until(name, "A fires")
        story.fire("growing", "B")
        story.fire("repeated", value=97)  # as its rule is evaluated again
        story.end("anew")
        story.until("growing", "A fires", "B fires")
        story.until("anew", "A fires", "A is resolved")
        story.fire("anew")
        story.end("growing", "B")
        until(lambda: verdicts(conn, "repeated")["reminder"])
        until(lambda: verdicts(conn, "repeated").total() > 3)  # some of them to the byte
        story.until("growing", "A fires", "B fires", "B is resolved")
        story.until("anew", "A fires", "A is resolved", "A fires")
        for name in FIRST:
            way.fates(f"/in/default/{name}", *LAST.get(name, ()))
            story.end(name)
        over: dict[str, list[str]] = {
            **{name: ["A fires", "A is resolved"] for name in FIRST},
            "growing": ["A fires", "B fires", "B is resolved", "A is resolved"],
            "anew": ["A fires", "A is resolved"] * 2,
        }
        for name, changes in over.items():
            story.until(name, *changes)
        # Whatever a peer or a retry still says of these is said before this.
        story.fire("last")
        story.until("last", "A fires")
        story.end("last")
        story.until("last", "A fires", "A is resolved")

        assert {name: story.events(name) for name in over} == over
        for name, changes in over.items():
            firings = sum(each.endswith("fires") for each in changes)
            assert (
                one(conn, "select count(*) from semel.runs where source = %s", name) == firings
            )
            assert not verdicts(conn, name)["quarantined"]
        assert 503 in way.answers("/in/default/busy")
        assert {400, 201} <= set(way.answers("/in/default/strict"))
        assert way.answers("/in/default/lost").count(0) == 2
        assert verdicts(conn, "lost")["duplicate"] + verdicts(conn, "lost")["reminder"] >= 2
