"""What holds of every verb on every network: conservation, monotony, physics, and a few published results."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretrain.errors import InvalidRequest
from foretrain.facts.hardware import hardware
from foretrain.prediction.collectives.costs import (
    Collective,
    Group,
    Verb,
    collective_seconds,
    price_collective,
)
from foretrain.prediction.collectives.network import network_of, with_factor

MACHINES = ("h100-sxm:8x4", "a100-sxm-80gb:4x2", "aws:g4dn.12xlarge:4", "nd40rs-v2", "l40s:8", "dgx-b200")
LOADS = {
    Verb.ALL_REDUCE: lambda size: 2 * (size - 1) / size,
    Verb.ALL_GATHER: lambda size: (size - 1) / size,
    Verb.REDUCE_SCATTER: lambda size: (size - 1) / size,
    Verb.ALL_TO_ALL: lambda size: (size - 1) / size,
    Verb.PUSH: lambda size: min(1, size - 1),
    Verb.PULL: lambda size: min(1, size - 1),
    Verb.BROADCAST: lambda size: min(1, size - 1),
    Verb.REDUCE: lambda size: min(1, size - 1),
    Verb.SEND: lambda size: min(1, size - 1),
}
"""How often the message goes through the busiest link."""


@st.composite
def groups(draw: st.DrawFn) -> tuple[str, Group]:
    """A machine and a group that fits it."""
    name = draw(st.sampled_from(MACHINES))
    machine = hardware(name)
    per_node = draw(st.integers(1, machine.devices_per_node))
    nodes = draw(st.integers(1, machine.nodes))
    concurrent = draw(st.integers(1, machine.devices_per_node // per_node))
    return name, Group(per_node * nodes, per_node, concurrent)


@settings(max_examples=150)
@given(groups(), st.sampled_from(list(Verb)))
def test_more_bytes_never_take_less_time_and_never_beat_the_data_sheet(
    case: tuple[str, Group], verb: Verb
) -> None:
    name, group = case
    machine = hardware(name)
    network = network_of(machine)
    sizes = np.logspace(0, 10, 60)
    seconds = collective_seconds(verb, sizes, group, network, machine.device)
    if group.size == 1:
        assert not seconds.any()
        return
    assert (np.diff(seconds) >= -1e-15).all()
    nominal = max(
        tier.nominal_bytes_per_second for tier in (network.intra, network.inter) if tier is not None
    )
    sums_in_switch = 2.0 if verb is Verb.ALL_REDUCE else 1.0
    assert (seconds >= sizes * LOADS[verb](group.size) / nominal / sums_in_switch).all()


@settings(max_examples=60)
@given(groups(), st.sampled_from(list(Verb)), st.floats(1e3, 1e10))
def test_the_cost_of_one_is_the_time_among_many(case: tuple[str, Group], verb: Verb, size: float) -> None:
    name, group = case
    machine = hardware(name)
    network = network_of(machine)
    cost = price_collective(Collective(verb, size, group), network, machine.device)
    (seconds,) = collective_seconds(verb, np.array([size]), group, network, machine.device)
    assert cost.seconds == pytest.approx(seconds)
    assert cost.p10 <= 1 <= cost.p90


@settings(max_examples=60)
@given(groups(), st.sampled_from(list(Verb)), st.floats(1e3, 1e10))
def test_faster_links_never_slow_down(case: tuple[str, Group], verb: Verb, size: float) -> None:
    name, group = case
    machine = hardware(name)
    network = network_of(machine)
    message = np.array([size])
    faster = with_factor(network, intra=2.0, inter=2.0)
    before = collective_seconds(verb, message, group, network, machine.device)
    assert collective_seconds(verb, message, group, faster, machine.device) <= before * (1 + 1e-12)


def test_groups_that_share_the_network_cards_wait_for_each_other() -> None:
    machine = hardware("h100-sxm:8x4")
    network = network_of(machine, inter="infiniband-ndr:1")
    message = np.array([1e9])
    alone, shared = (
        collective_seconds(Verb.ALL_REDUCE, message, Group(8, 2, concurrent), network, machine.device)
        for concurrent in (1, 4)
    )
    assert shared == pytest.approx(4 * alone, rel=0.1)


def test_a_group_that_does_not_fit_is_refused() -> None:
    machine = hardware("h100-sxm:8x4")
    with pytest.raises(InvalidRequest, match="do not fit"):
        price_collective(Collective(Verb.ALL_REDUCE, 1e6, Group(16, 16)), network_of(machine), machine.device)


def test_small_messages_across_many_nodes_use_trees() -> None:
    machine = hardware("h100-sxm:1x64")
    network = network_of(machine)
    small = price_collective(Collective(Verb.ALL_REDUCE, 1e3, Group(64, 1)), network, machine.device)
    large = price_collective(Collective(Verb.ALL_REDUCE, 1e10, Group(64, 1)), network, machine.device)
    assert (small.algorithm, large.algorithm) == ("tree", "ring")


def test_bus_bandwidths_that_the_authors_of_nccl_expect_of_eight_h100() -> None:
    """NVIDIA/nccl-tests issue 212: 370 GB/s, and 480 GB/s where the switch sums; large messages."""
    machine = hardware("h100-sxm:8")
    network = network_of(machine)
    size = 8 * 2**30
    for verb, expected in ((Verb.ALL_GATHER, 370e9), (Verb.ALL_REDUCE, 480e9)):
        cost = price_collective(Collective(verb, size, Group(8, 8)), network, machine.device)
        assert LOADS[verb](8) * size / cost.seconds == pytest.approx(expected, rel=0.1)


def test_a_gigabit_all_reduce_of_two_is_bound_by_the_wire() -> None:
    """64 MiB took 563 ms between two CPU workers behind 1 Gbit/s (measured with gloo)."""
    machine = hardware("t4:1x2")
    network = network_of(machine, inter="ethernet-1g")
    cost = price_collective(Collective(Verb.ALL_REDUCE, 64 * 2**20, Group(2, 1)), network, machine.device)
    assert cost.seconds == pytest.approx(0.563, rel=0.05)
