"""The defaults of jobs: each with a kind and a source, and the measured one as counted."""

import pytest

from foretrain.errors import MissingData
from foretrain.facts.running import FAILURES, POWER, SPOT_INTERRUPTIONS, STARTUP, default, defaults
from foretrain.facts.sheets import FactKind, sources


def test_each_has_a_source_and_says_what_it_means() -> None:
    for known in defaults().values():
        assert known.source in sources()
        assert known.meaning
        assert known.note


def test_the_failure_rate_is_the_one_counted() -> None:
    assert default(FAILURES).kind is FactKind.MEASURED
    assert default(FAILURES).quantiles.p50 == pytest.approx(419 / (54 * 16384), rel=2e-3)


def test_guesses_are_marked() -> None:
    assert all(default(name).kind is FactKind.ASSUMED for name in (STARTUP, SPOT_INTERRUPTIONS, POWER))


def test_an_unknown_one_is_missing() -> None:
    with pytest.raises(MissingData, match="says nothing of coffee"):
        default("coffee")
