from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrain.errors import InvalidRequest, UnknownName
from foretrain.facts.providers import providers
from foretrain.facts.running import cloud_regions, co2_kg, energy_kwh, grid_intensity, grids, pue, pues
from foretrain.facts.sheets import data_root, read_toml

SOURCES = set(read_toml(data_root() / "sources.toml"))


def test_one_kilowatt_for_one_hour_is_one_kilowatt_hour() -> None:
    assert energy_kwh(1000, 3600) == 1
    assert energy_kwh(1000, 3600, pue=1.5) == 1.5


def test_ten_kilowatt_hours_at_400_grams_are_four_kilograms() -> None:
    assert co2_kg(10, 400) == 4


@given(st.floats(0, 1e6), st.floats(0, 1e8), st.floats(1, 3))
def test_energy_is_linear_in_time_and_the_site_uses_no_less_than_its_computers(
    watts: float, seconds: float, overhead: float
) -> None:
    assert energy_kwh(watts, 2 * seconds, overhead) == pytest.approx(2 * energy_kwh(watts, seconds, overhead))
    assert energy_kwh(watts, seconds, overhead) >= energy_kwh(watts, seconds)


@pytest.mark.parametrize(("watts", "seconds", "overhead"), [(-1, 1, 1), (1, -1, 1), (1, 1, 0.9)])
def test_impossible_energy_is_refused(watts: float, seconds: float, overhead: float) -> None:
    with pytest.raises(InvalidRequest):
        energy_kwh(watts, seconds, overhead)


@pytest.mark.parametrize(("kwh", "grams"), [(-1, 1), (1, -1)])
def test_negative_emissions_are_refused(kwh: float, grams: float) -> None:
    with pytest.raises(InvalidRequest):
        co2_kg(kwh, grams)


def test_a_country_by_code_or_name() -> None:
    assert grid_intensity("FRA") == grid_intensity("France") == grid_intensity("france")
    assert grid_intensity("FRA").gco2e_per_kwh < grid_intensity("POL").gco2e_per_kwh


def test_georgia_is_a_country_and_a_state() -> None:
    assert grid_intensity("Georgia").code == "GEO"
    assert grid_intensity("Georgia, USA").code == "US-GA"


def test_a_region_with_a_figure_of_its_own_keeps_it() -> None:
    paris = grid_intensity("europe-west9", provider="gcp")
    assert (paris.gco2e_per_kwh, paris.source) == (34, "google-region-carbon")


def test_a_region_without_a_figure_has_that_of_its_grid() -> None:
    virginia = grid_intensity("us-east-1", provider="aws")
    assert virginia.gco2e_per_kwh == grid_intensity("US-VA").gco2e_per_kwh
    assert "us-east-1" in virginia.name


def test_a_region_of_another_provider_is_unknown() -> None:
    with pytest.raises(UnknownName, match="us-east1"):
        grid_intensity("us-east-1", provider="gcp")


def test_unknown_place_suggests_near_ones() -> None:
    with pytest.raises(UnknownName, match="Germany"):
        grid_intensity("Germania")


def test_state_intensity_is_converted_from_pounds_per_megawatt_hour() -> None:
    # eGRID2023 states 713.976 lb/MWh for Alabama; x 0.45359237 kg/lb = 323.9 g/kWh
    assert grid_intensity("US-AL").gco2e_per_kwh == pytest.approx(713.976 * 0.45359237, abs=0.05)


def test_pue_by_provider_and_the_average() -> None:
    assert pue("google") == pue("gcp")
    assert pue("aws").value < pue("average").value
    with pytest.raises(UnknownName, match="average"):
        pue("corner-shop")


def test_every_grid_is_within_what_electricity_can_emit() -> None:
    assert len(grids()) > 250
    for grid in grids().values():
        assert 1 < grid.gco2e_per_kwh < 1400, grid  # oil and lignite plants emit about 1.3 kg/kWh at worst
        assert grid.year is not None
        assert 2000 < grid.year < 2027
        assert grid.source in SOURCES


def test_every_region_is_on_a_known_grid_and_named_once() -> None:
    regions = cloud_regions()
    assert {"aws", "azure", "gcp", "oci", "runpod", "vast"} <= {region.provider for region in regions}
    assert all(region.provider in providers() for region in regions)
    assert len({region.region for region in regions}) == len(regions)
    for region in regions:
        assert region.grid in grids()
        assert region.source in SOURCES
        assert 0 < grid_intensity(region.region, region.provider).gco2e_per_kwh < 1400


def test_every_pue_is_possible_and_has_a_source() -> None:
    for entry in pues().values():
        assert 1 <= entry.value < 2
        assert entry.source in SOURCES
