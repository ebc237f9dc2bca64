"""Which machines are compared: offers asked for, alone and several together, and why others are not."""

from __future__ import annotations

import pytest

from foretrain.errors import InvalidRequest, UnknownName
from foretrain.facts.offers import search
from foretrain.facts.options import OfferQuery
from foretrain.planning.frontier import Exclusion
from foretrain.planning.machines import (
    Excluded,
    Machines,
    MachinesRequest,
    enumerate_machines,
    exclusions,
)


def found(**asked: object) -> tuple[tuple[Machines, ...], tuple[Exclusion, ...]]:
    machines, excluded = enumerate_machines(MachinesRequest(**asked))  # type: ignore[arg-type]
    return machines, exclusions(excluded)


def names(of: tuple[Machines, ...]) -> list[str]:
    return [each.hardware.name for each in of]


def test_machines_of_a_known_network_come_in_powers_of_two_up_to_the_most() -> None:
    both, _ = found(gpu=("a100-sxm-40gb",), cloud=("aws",), max_gpus=40)
    assert names(both) == ["aws:p4d.24xlarge", "aws:p4d.24xlarge:2", "aws:p4d.24xlarge:4"]
    for each, count in zip(both, (1, 2, 4), strict=True):
        assert each.hardware.nodes == each.shape.nodes == count
        assert each.hardware.devices == each.shape.devices == 8 * count
        assert each.hardware.offer is each.offer


def test_machines_of_an_unknown_network_come_alone_unless_one_is_named() -> None:
    alone, reasons = found(gpu=("t4",), cloud=("azure",), max_gpus=8)
    assert all(each.hardware.nodes == 1 for each in alone)
    (why,) = reasons
    assert why.reason == "considered as single nodes only: inter-node network unknown (give `network`)"
    together, reasons = found(gpu=("t4",), cloud=("azure",), max_gpus=8, network="ethernet-10g")
    assert max(each.hardware.devices for each in together) == 8
    assert {each.hardware.network for each in together} == {"ethernet-10g"}
    assert reasons == ()


def test_machines_too_large_or_of_unknown_devices_are_excluded() -> None:
    some, reasons = found(gpu=("h100",), max_gpus=2)
    assert all(each.hardware.devices <= 2 for each in some)
    by_reason = {each.reason: each for each in reasons}
    large = {
        f"{offer.provider}:{offer.instance}"
        for offer in search(OfferQuery(gpu="h100", all_regions=True))
        if offer.count > 2 and offer.device is not None
    }
    assert by_reason["more than 2 GPUs"].count == len(large)
    assert set(by_reason["more than 2 GPUs"].examples) <= large
    assert "H100 variant not specified" in by_reason


def test_each_machine_is_taken_where_it_is_cheapest() -> None:
    every, _ = found(gpu=("t4",), cloud=("aws",), max_gpus=1)
    assert len({each.offer.instance for each in every}) == len(every)
    for each in every:
        prices = [
            offer.usd_per_hour
            for offer in search(OfferQuery(gpu="t4", cloud=("aws",), all_regions=True))
            if offer.instance == each.offer.instance
        ]
        assert len(prices) > 1
        assert each.offer.usd_per_hour == min(prices)


def test_spot_machines_are_those_with_a_spot_price_where_that_is_least() -> None:
    every, _ = found(gpu=("t4",), spot=True, max_gpus=1)
    assert every
    for each in every:
        prices = [
            offer.spot_usd_per_hour
            for offer in search(
                OfferQuery(gpu="t4", cloud=(each.offer.provider,), spot=True, all_regions=True)
            )
            if offer.instance == each.offer.instance
        ]
        assert each.offer.spot_usd_per_hour == min(price for price in prices if price is not None)


def test_gpus_are_a_union_without_doubles_and_clouds_a_filter() -> None:
    t4, _ = found(gpu=("t4",), max_gpus=4)
    l4, _ = found(gpu=("l4",), max_gpus=4)
    both, _ = found(gpu=("t4", "l4", "t4"), max_gpus=4)
    assert sorted(names(both)) == sorted(names(t4) + names(l4))
    aws, _ = found(gpu=("t4", "l4"), cloud=("aws",), max_gpus=4)
    assert names(aws) == [each.hardware.name for each in both if each.offer.provider == "aws"]


def test_equal_devices_with_equal_links_share_a_shape_across_providers() -> None:
    ones, _ = found(gpu=("rtx4090",), max_gpus=1)
    assert len({each.offer.provider for each in ones}) > 1
    assert {each.shape for each in ones} == {ones[0].shape}
    eights, _ = found(gpu=("a100-sxm-40gb",), max_gpus=8)
    shapes = {each.offer.provider: each.shape for each in eights if each.shape.devices == 8}
    assert shapes["aws"] != shapes["lambda"], "a machine type whose links are known has its own"


def test_unknown_names_and_counts_are_refused() -> None:
    for asked in ({"gpu": ("t44",)}, {"cloud": ("awz",)}, {"region": ("mars",)}):
        with pytest.raises(UnknownName):
            found(**asked)
    with pytest.raises(InvalidRequest, match="`max_gpus` must be at least 1, got 0"):
        MachinesRequest(max_gpus=0)


def test_exclusions_count_machine_types_the_most_frequent_reason_first() -> None:
    slow = [Excluded(name, "too slow") for name in ("b", "c", "d", "e", "b")]
    (only,) = exclusions(slow)
    assert (only.reason, only.count, only.examples) == ("too slow", 4, ("b", "c", "d"))
    both = exclusions([Excluded("a", "too expensive"), *slow])
    assert [each.reason for each in both] == ["too slow", "too expensive"]
