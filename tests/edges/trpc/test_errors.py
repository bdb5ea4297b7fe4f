"""What tRPC's clients are told of Semel's own errors."""

import pytest

from semel.edges.trpc.errors import refused
from semel.errors import DatabaseUnreachable, InFlight, KeyConflict, LostRace, SemelError


@pytest.mark.parametrize(
    ("error", "code", "after"),
    [
        (InFlight("x"), "CONFLICT", True),
        (LostRace("x"), "CONFLICT", True),
        (KeyConflict("x"), "CONFLICT", False),
        (DatabaseUnreachable("x"), "SERVICE_UNAVAILABLE", True),
    ],
)
def test_what_may_be_sent_again_says_when(error: SemelError, code: str, *, after: bool) -> None:
    told = refused(error)
    assert told.code == code
    assert told.data["retryable"] is after
    assert ("retry-after" in dict(told.headers)) is after
