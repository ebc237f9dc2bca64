"""`foretrain devices`."""

import json
from collections.abc import Callable
from subprocess import CompletedProcess

import pytest

from foretrain.facts.sheets import quantities
from foretrain.facts.sources import sources

Run = Callable[..., CompletedProcess[str]]


def test_at_least_sixty_devices_and_every_value_has_a_source_that_resolves(run_here: Run) -> None:
    listed = json.loads(run_here("devices", "--json").stdout)
    assert len(listed) >= 60
    for device in listed:
        assert device["facts"], device["id"]
        for quantity, fact in device["facts"].items():
            assert fact["source"] in sources(), (device["id"], quantity)
            assert fact["kind"] in {"spec", "measured", "fitted", "assumed"}
            assert fact["unit"] == quantities()[quantity].unit


def test_one_device_is_one_object(run_here: Run) -> None:
    device = json.loads(run_here("devices", "v100-sxm2-16gb", "--json").stdout)
    assert (device["id"], device["vendor"], device["family"]) == ("v100-sxm2-16gb", "nvidia", "v100")
    assert device["facts"]["memory_bytes"]["value"] == 16 * 2**30
    assert device["facts"]["memory_bytes"]["unit"] == "B"


@pytest.mark.parametrize("alias", ["NVIDIA H100 80GB HBM3", "H100-SXM", "h100_sxm"])
def test_names_that_drivers_print_find_the_device(run_here: Run, alias: str) -> None:
    assert json.loads(run_here("devices", alias, "--json").stdout)["id"] == "h100-sxm"


def test_a_family_lists_its_variants(run_here: Run) -> None:
    listed = json.loads(run_here("devices", "a100", "--json").stdout)
    assert {device["id"] for device in listed} == {
        "a100-pcie-40gb", "a100-pcie-80gb", "a100-sxm-40gb", "a100-sxm-80gb",
    }  # fmt: skip


def test_the_table_has_a_line_for_each_device(run_here: Run) -> None:
    lines = run_here("devices", "a100").stdout.splitlines()
    assert lines[0].split() == [
        "device", "generation", "year", "FP32", "tensor", "memory", "bandwidth", "TDP",
    ]  # fmt: skip
    (row,) = [line for line in lines if line.startswith("a100-sxm-40gb")]
    assert row.split() == "a100-sxm-40gb ampere 2020 19.5 T 312 T 40.0 GiB 1.55 TB/s 400 W".split()


def test_one_device_in_words(run_here: Run) -> None:
    text = run_here("devices", "t4").stdout
    assert text.startswith("t4: ")
    (row,) = [line for line in text.splitlines() if line.startswith("tdp_watts")]
    assert row.split()[1:4] == ["70", "W", "spec"]


def test_filters_by_vendor_and_generation(run_here: Run) -> None:
    amd = json.loads(run_here("devices", "--vendor", "AMD", "--json").stdout)
    assert {device["vendor"] for device in amd} == {"amd"}
    turing = json.loads(run_here("devices", "--generation", "turing", "--vendor", "nvidia", "--json").stdout)
    assert {device["generation"] for device in turing} == {"turing"}
    assert "t4" in {device["id"] for device in turing}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("h100-sxn",), "no device 'h100-sxn'; did you mean h100-sxm"),
        (("--vendor", "nvidai"), "no vendor 'nvidai'; did you mean nvidia?"),
        (("--generation", "amper"), "no generation 'amper'; did you mean ampere?"),
        (("--jsn",), "No such option '--jsn'. Did you mean"),
    ],
)
def test_unknown_names_get_one_sentence_with_near_ones(
    run_here: Run, arguments: tuple[str, ...], sentence: str
) -> None:
    run = run_here("devices", *arguments)
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr.startswith(f"error: {sentence}")
    assert run.stderr.count("\n") == 1


@pytest.mark.usefixtures("quick_measurement")
def test_measuring_this_machine_adds_a_device(run_here: Run) -> None:
    measured = json.loads(run_here("devices", "--measure-here", "--json").stdout)
    assert measured["id"] == "here"
    assert measured["facts"]["fp32_flop_per_second"]["kind"] == "measured"
    assert json.loads(run_here("devices", "here", "--json").stdout) == measured
    assert "this machine" in measured["aliases"]
