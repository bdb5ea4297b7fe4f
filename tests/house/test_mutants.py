"""The mutants are of the functions as they are now."""

import pytest

from mutants import DURABLE, ROOT, SUITE, mutate
from mutations import MUTATIONS


@pytest.mark.parametrize("name", MUTATIONS)
def test_each_mutation_finds_its_text_once(name: str) -> None:
    assert mutate(MUTATIONS[name])


def test_there_are_enough_of_them_over_all_functions() -> None:
    assert len(MUTATIONS) >= 60
    assert len({mutation.function for mutation in MUTATIONS.values()}) >= 25
    assert all((ROOT / path).exists() for path in (*SUITE, *DURABLE))
