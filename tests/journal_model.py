"""What the journal must be: written down as simply as it can be, without SQL."""

from dataclasses import dataclass, field
from typing import Any

KEEP = 60.0
LEASE = 30.0


@dataclass
class Said:
    """One entry: which row its transaction wrote before it, and its place once it has one."""

    word: int
    topic: str
    row: int
    seq: int | None = None
    numbered: float = 0


@dataclass
class Cursor:
    """A consumer's."""

    at: int
    topics: list[str] | None
    holder: Any = None
    until: float = float("-inf")


@dataclass
class JournalModel:
    """Every entry that was committed, in the order of commits, and who has come how far."""

    committed: list[Said] = field(default_factory=list)
    numbered: list[Said] = field(default_factory=list)
    dropped: int = 0
    cursors: dict[str, Cursor] = field(default_factory=dict)

    @property
    def end(self) -> int:
        return len(self.numbered)

    def number(self, words: list[int], now: float) -> None:
        """The SQL has put *words* behind what was there: it may, and nothing else is due before."""
        pending = [one for one in self.committed if one.seq is None]
        by_word = {one.word: one for one in pending}
        for word in words:
            one = by_word.pop(word)  # committed, and numbered once
            earlier = [o for o in pending if o.row == one.row and o.seq is None]
            assert earlier[0] is one, f"{one} before {earlier[0]}, which was committed first"
            self.numbered.append(one)
            one.seq, one.numbered = self.end, now

    def page(self, name: str, limit: int) -> tuple[str, list[int], int]:
        """What a consumer finds: outcome, words, and how far it has come then."""
        cursor = self.cursors[name]
        if cursor.at < self.dropped:
            return "passed", [], self.dropped
        rest = [
            one
            for one in self.numbered[cursor.at :]
            if cursor.topics is None or one.topic in cursor.topics
        ]
        page = rest[:limit]
        upto = page[-1].seq or 0 if len(page) == limit else self.end
        return "read", [one.word for one in page], upto

    def expire(self, now: float) -> int:
        """Drop the oldest whose time is up, none behind a younger one; answers how many."""
        before = self.dropped
        while self.dropped < self.end and self.numbered[self.dropped].numbered <= now - KEEP:
            self.dropped += 1
        return self.dropped - before

    def kept(self) -> list[tuple[int, int]]:
        """All that can be read: seq and word."""
        return [(one.seq or 0, one.word) for one in self.numbered[self.dropped :]]
