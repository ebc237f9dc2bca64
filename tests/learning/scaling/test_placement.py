"""Placements: how they are written, and what they mean."""

import pytest

from foretrain.errors import InvalidRequest
from foretrain.learning.scaling.configurations import Placement, parse_placement, spread


def test_a_placement_counts_nodes_devices_and_the_fullest_node() -> None:
    place = parse_placement("2+4+4")
    assert (place.nodes, place.devices, place.fullest) == (3, 10, 4)
    assert place.devices_per_node == (4, 4, 2)


def test_the_order_of_nodes_is_printed_as_given_and_does_not_matter() -> None:
    given, sorted_ = parse_placement(" 1 + 2 "), parse_placement("2+1")
    assert (str(given), str(sorted_)) == ("1+2", "2+1")
    assert given == sorted_
    assert hash(given) == hash(sorted_)


@pytest.mark.parametrize("text", ["", "4+", "0", "4+0", "-1", "4x2", "1.5", "four", "²"])
def test_text_that_is_no_placement_is_an_error(text: str) -> None:
    with pytest.raises(InvalidRequest, match="not devices on each node"):
        parse_placement(text)


def test_devices_are_spread_evenly() -> None:
    assert spread(3, 10) == Placement((4, 3, 3))
    assert spread(1, 8) == Placement((8,))
    with pytest.raises(InvalidRequest, match="3 devices cannot use 4 nodes"):
        spread(4, 3)
