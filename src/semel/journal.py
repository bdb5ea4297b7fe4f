"""
The journal, for programs: say what a transaction did, and read what was said.

`append` writes in any transaction; `take` and `Consumer` read, each entry in its order and none
skipped. See docs/journal.md.
"""

from semel.core.consumers import Entry
from semel.errors import CursorLost, JournalPassed, NoSuchConsumer
from semel.runtime.append import append, wake
from semel.runtime.consumer import Batch, Consumer
from semel.runtime.take import join, number, take

__all__ = [
    "Batch",
    "Consumer",
    "CursorLost",
    "Entry",
    "JournalPassed",
    "NoSuchConsumer",
    "append",
    "join",
    "number",
    "take",
    "wake",
]
