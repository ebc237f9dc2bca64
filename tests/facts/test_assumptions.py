"""Single assumed numbers: each with a source, and an unknown one is an error."""

import pytest

from foretrain.errors import MissingData
from foretrain.facts.assumptions import FULL_TIME_HOURS, PLANNED_LINK_SHARE, assumption, assumptions
from foretrain.facts.devices import devices
from foretrain.facts.sources import sources


def test_each_has_a_source_and_a_meaning() -> None:
    for each in assumptions().values():
        assert each.source in sources()
        assert each.meaning and each.unit and each.note


def test_they_are_as_documented() -> None:
    assert assumption(PLANNED_LINK_SHARE).value == 0.8
    assert assumption(FULL_TIME_HOURS).value == 2000


def test_an_unknown_one_is_missing() -> None:
    with pytest.raises(MissingData, match="has no coffee"):
        assumption("coffee")


def test_consumer_cards_state_that_they_do_not_reach_their_peers() -> None:
    """GeForce, TITAN and Radeon cards stage transfers in host memory; the fact is on their sheets."""
    without = {device.id for device in devices().values() if device.sheet.has("pcie_peer_access")}
    consumer = {
        device.id
        for device in devices().values()
        if any(line in device.name for line in ("GeForce", "TITAN", "Radeon"))
    }
    assert consumer == without
    assert {devices()[name].sheet.number("pcie_peer_access") for name in without} == {0}
