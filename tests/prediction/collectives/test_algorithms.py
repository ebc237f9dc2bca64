"""Formulas on media so simple that the numbers can be worked out by hand."""

import numpy as np
import pytest

from foretrain.prediction.collectives.algorithms import (
    Medium,
    best_pieces,
    can_sum,
    carried_seconds,
    chain_broadcast_seconds,
    direct_all_to_all_seconds,
    flat_ring,
    hierarchical_all_reduce_seconds,
    hierarchical_gather_seconds,
    in_switch_all_reduce_seconds,
    pipelined_broadcast_seconds,
    ring_all_reduce_seconds,
    ring_gather_seconds,
    send_seconds,
    shared_link_seconds,
    tree_all_reduce_seconds,
    tree_broadcast_seconds,
    two_tier_all_to_all_seconds,
    two_tier_server_seconds,
)


def medium(rate: float = 1.0, step: float = 0.0, **other: float) -> Medium:
    """A wire of `rate` bytes a second, one protocol, nothing else that takes time by default."""
    values = {
        "bytes_per_second": rate,
        "copy_bytes_per_second": np.inf,
        "startup_seconds": 0.0,
        "step_seconds": step,
        "low_latency_share": 1.0,
        "bulk_startup_seconds": 0.0,
        "bulk_step_seconds": 0.0,
        "saturation_bytes": 0.0,
        "peer_bytes_per_second": rate,
        "peer_copy_bytes_per_second": np.inf,
        "peer_startup_seconds": 0.0,
        "peer_step_seconds": step,
    }
    return Medium(**{**values, **other})


MESSAGE = np.array([120.0])


def test_a_chain_passes_the_whole_message_to_each_of_the_others() -> None:
    assert chain_broadcast_seconds(MESSAGE, 4, medium(rate=10)) == pytest.approx([36.0])  # 3 x 120 / 10
    assert chain_broadcast_seconds(MESSAGE, 4, medium(rate=10, step=2)) == pytest.approx([42.0])


def test_a_pipelined_chain_by_the_published_formula() -> None:
    """N (S+k-2) / (S B) = 120 x (6+4-2) / (6 x 10)."""
    assert pipelined_broadcast_seconds(MESSAGE, 4, medium(rate=10), pieces=6) == pytest.approx([16.0])


def test_the_best_number_of_pieces_beats_all_others() -> None:
    wire = medium(rate=10, step=0.25)
    best = pipelined_broadcast_seconds(MESSAGE, 5, wire)
    assert best_pieces(MESSAGE, 5, wire) == pytest.approx([12.0])  # √(3 x 120 / (0.25 x 10))
    assert all(
        best <= pipelined_broadcast_seconds(MESSAGE, 5, wire, pieces) + 1e-9 for pieces in range(1, 60)
    )


def test_a_tree_doubles_the_members_that_have_the_message() -> None:
    assert tree_broadcast_seconds(MESSAGE, 8, medium(rate=10, step=1)) == pytest.approx([39.0])  # 3 x 13


def test_a_ring_moves_two_rounds_of_all_but_ones_own_part() -> None:
    wire = medium(rate=10, step=1)
    assert ring_all_reduce_seconds(MESSAGE, 4, wire) == pytest.approx([24.0])  # 6 x 1 + 1.5 x 12
    assert ring_gather_seconds(MESSAGE, 4, wire) == pytest.approx([12.0])  # 3 x 1 + 0.75 x 12


def test_the_copy_of_ones_own_part_shows_in_small_groups() -> None:
    slow = medium(rate=10, copy_bytes_per_second=20.0)
    assert ring_gather_seconds(MESSAGE, 2, slow) == pytest.approx([9.0])  # 60 / 10 + 60 / 20


def test_trees_need_fewer_steps_and_more_wire() -> None:
    assert tree_all_reduce_seconds(MESSAGE, 16, medium(rate=10, step=1)) == pytest.approx([32.0])  # 8 + 24
    latency = medium(rate=1e9, step=1)
    assert tree_all_reduce_seconds(MESSAGE, 16, latency) < ring_all_reduce_seconds(MESSAGE, 16, latency)


def test_a_switch_that_sums_carries_the_message_once() -> None:
    wire = medium(rate=10, in_switch_bytes_per_second=12.0)
    assert can_sum(8, wire)
    assert not can_sum(4, wire)
    assert not can_sum(8, medium(rate=10))
    assert in_switch_all_reduce_seconds(MESSAGE, 8, wire) == pytest.approx([10.0])


def test_small_messages_take_the_low_latency_protocol_and_large_ones_go_in_bulk() -> None:
    wire = medium(
        low_latency_share=0.5, bulk_startup_seconds=4.0, bulk_step_seconds=1.0, saturation_bytes=1.0
    )
    work = np.array([1.0, 100.0])
    assert carried_seconds(work, 2, wire) == pytest.approx([2.0, 4 + 2 + 100 + 20])


def test_all_to_all_keeps_one_part_and_sends_the_others() -> None:
    wire = medium(rate=10, step=1, peer_copy_bytes_per_second=30.0)
    assert direct_all_to_all_seconds(MESSAGE, 4, wire) == pytest.approx([13.0])  # 3 + 90 / 10 + 30 / 30


def test_all_to_all_across_nodes_takes_the_longer_of_network_and_links() -> None:
    seconds = two_tier_all_to_all_seconds(MESSAGE, 8, 4, medium(rate=10), medium(rate=2))
    assert seconds == pytest.approx([30.0])  # 60 bytes away at 2 bytes a second; inside 45 / 10
    alone = two_tier_all_to_all_seconds(MESSAGE, 4, 1, None, medium(rate=2))
    assert alone == pytest.approx([45.0])


def test_workers_share_the_servers_link() -> None:
    """S / (B/n): 120 / (10 / 3)."""
    assert shared_link_seconds(MESSAGE, 3, medium(rate=10)) == pytest.approx([36.0])
    assert two_tier_server_seconds(MESSAGE, 3, 2, medium(rate=100), medium(rate=10)) == pytest.approx([24.0])
    assert two_tier_server_seconds(MESSAGE, 3, 2, medium(rate=10), medium(rate=100)) == pytest.approx([36.0])


def test_a_send_is_latency_and_bandwidth() -> None:
    assert send_seconds(MESSAGE, medium(rate=10, step=2)) == pytest.approx([14.0])


def test_hierarchies_put_a_part_of_the_message_on_each_rail() -> None:
    inside, outside = medium(rate=100), medium(rate=10, step=1)
    around = 2 * 0.75 * 120 / 100
    across = 2 * 1 + 2 * 0.5 * 30 / 10
    seconds = hierarchical_all_reduce_seconds(MESSAGE, 4, 2, inside, outside)
    assert seconds == pytest.approx([around + across])
    half = [around / 2 + across / 2]
    assert hierarchical_gather_seconds(MESSAGE, 4, 2, inside, outside) == pytest.approx(half)


def test_a_flat_ring_is_as_fast_as_the_slower_of_links_and_network() -> None:
    flat = flat_ring(4, 2, medium(rate=100, step=1), medium(rate=10, step=8))
    assert flat.bytes_per_second == 40
    assert flat.step_seconds == pytest.approx(2.0)  # one of seven hops crosses
    assert flat_ring(4, 2, medium(rate=30), medium(rate=10)).bytes_per_second == 30
