"""The shipped offers, checked by hand where it matters, and the search among them."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from foretrain.errors import InvalidData, InvalidRequest, UnknownName
from foretrain.facts import offers as offers_module
from foretrain.facts import providers as providers_module
from foretrain.facts.devices import devices, family
from foretrain.facts.offers import (
    Offer,
    all_offers,
    contradiction,
    offer_named,
    offers_named,
    search,
    shipped_offers,
)
from foretrain.facts.options import OfferQuery
from foretrain.facts.price_files import without_outliers
from foretrain.facts.providers import LeftOut, providers, user_offers_file
from foretrain.facts.sheets import FactKind, data_root, read_toml
from foretrain.units import GIB


@pytest.fixture(autouse=True)
def no_imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORETRAIN_HOME", str(tmp_path))


def current() -> list[Offer]:
    return [offer for offer in shipped_offers() if not offer.historical]


# ---- the data ---------------------------------------------------------------------------------------------


def test_every_device_and_family_exists() -> None:
    for offer in shipped_offers():
        if offer.device is None:
            assert family(offer.family), (
                f"{offer.provider}:{offer.instance} is of no known family {offer.family}"
            )
        else:
            assert devices()[offer.device].family == offer.family, offer


def test_every_mapped_device_and_family_exists() -> None:
    for provider in providers().values():
        for rule in provider.accelerators:
            assert rule.device in devices() if rule.device else family(rule.family or ""), rule


def test_every_source_is_on_record() -> None:
    sources = read_toml(data_root() / "sources.toml")
    assert all(entry.keys() == {"title", "locator", "retrieved", "licence"} for entry in sources.values())
    used = {offer.source for offer in shipped_offers()}
    used |= {rule.terms.source for provider in providers().values() for rule in provider.billing_rules}
    assert used <= sources.keys()


def test_every_file_of_offers_is_listed_and_says_its_date() -> None:
    for provider in providers().values():
        present = {file.name for file in provider.folder.iterdir() if file.name.startswith("offers_")}
        assert present == {listed.file for listed in provider.offer_files}
        for listed in provider.offer_files:
            assert re.fullmatch(r"20\d\d(-\d\d(-\d\d)?)?", listed.as_of)
            assert listed.as_of_kind in set(FactKind)
            assert listed.file.removeprefix("offers_")[:4] == listed.as_of[:4]


def test_no_offer_is_listed_twice() -> None:
    places = Counter(
        (offer.provider, offer.instance, offer.region, offer.as_of) for offer in shipped_offers()
    )
    assert [place for place, count in places.items() if count > 1] == []


def test_prices_are_sane() -> None:
    for offer in shipped_offers():
        assert 0.04 < offer.usd_per_device_hour < 40, offer
        assert offer.spot_usd_per_hour is None or 0 < offer.spot_usd_per_hour < offer.usd_per_hour, offer


def test_shipped_offers_hold_no_outliers_by_the_rule_they_were_made_with() -> None:
    kept, outliers = without_outliers(current())
    assert (len(kept), outliers) == (len(current()), ())


def test_gcp_offers_are_accelerator_plus_machine() -> None:
    """us-central1: one A100 2.93391 + a2-highgpu-1g 0.73948; a V100 2.48 + n1-standard-8, 8/96 of 4.55998."""
    (a100,) = (o for o in offers_named("gcp:a2-highgpu-1g") if o.region == "us-central1")
    assert a100.usd_per_hour == pytest.approx(2.93391 + 0.73948, abs=1e-5)
    assert a100.spot_usd_per_hour == pytest.approx(1.6939 + 0.36975, abs=1e-5)
    assert (a100.device, a100.count, a100.vcpus, a100.memory_bytes) == ("a100-sxm-40gb", 1, 12, 85 * GIB)
    (v100,) = (o for o in offers_named("gcp:n1-standard-8+1xV100") if o.region == "us-central1")
    assert v100.usd_per_hour == pytest.approx(2.48 + 4.55998 / 12, abs=1e-5)
    (h100,) = (o for o in offers_named("gcp:a3-highgpu-8g") if o.region == "us-central1")
    assert h100.usd_per_hour == pytest.approx(78.3724 + 9.46006, abs=1e-4)


@pytest.mark.parametrize(
    ("provider", "instance", "device", "count"),
    [
        ("aws", "p4d.24xlarge", "a100-sxm-40gb", 8),
        ("aws", "p4de.24xlarge", "a100-sxm-80gb", 8),
        ("aws", "p3dn.24xlarge", "v100-sxm2-32gb", 8),
        ("azure", "Standard_NC6s_v3", "v100-pcie-16gb", 1),
        ("azure", "Standard_NC24ads_A100_v4", "a100-pcie-80gb", 1),
        ("azure", "Standard_ND96isr_H100_v5", "h100-sxm", 8),
        ("azure", "Standard_NC40ads_H100_v5", "h100-nvl", 1),
        ("lambda", "gpu_1x_a100", "a100-pcie-40gb", 1),
        ("lambda", "gpu_1x_a100_sxm4", "a100-sxm-40gb", 1),
        ("lambda", "gpu_8x_a100", "a100-sxm-40gb", 8),
        ("runpod", "1x_H100_SECURE", "h100-pcie", 1),
        ("runpod", "2x_A100-80GB-SXM_SECURE", "a100-sxm-80gb", 2),
        ("vast", "1x-H100_NVL-32-65536", "h100-nvl", 1),
        ("vast", "1x-A100_SXM4-32-65536", None, 1),
        ("nebius", "gpu-rtx6000_1gpu-24vcpu-218gb", "rtxpro6000", 1),
    ],
)
def test_the_device_is_the_one_in_the_machine(
    provider: str, instance: str, device: str | None, count: int
) -> None:
    offer = offer_named(f"{provider}:{instance}")
    assert (offer.device, offer.count) == (device, count)


@pytest.mark.parametrize(
    ("cloud", "accelerator", "instance"),
    [
        ("gcp", "tpu-v4-8", ""),
        ("aws", "Inferentia2", "inf2.xlarge"),
        ("aws", "Trainium", "trn1.2xlarge"),
        ("runpod", "PRO-6000-MIG-24GB", "1x_PRO-6000-MIG-24GB_SECURE"),
        ("azure", "Radeon MI25", "Standard_NV4as_v4"),
        ("azure", "K80", "Standard_NC6_Promo"),
    ],
)
def test_what_is_left_out_has_a_reason(cloud: str, accelerator: str, instance: str) -> None:
    rule = providers()[cloud].identify(accelerator, instance)
    assert isinstance(rule, LeftOut)
    assert len(rule.reason) > 5


# ---- the search -------------------------------------------------------------------------------------------


def test_a_family_is_offered_by_many_clouds() -> None:
    found = search(OfferQuery(gpu="a100", all_regions=True))
    assert len({offer.provider for offer in found}) >= 6
    assert {offer.family for offer in found} == {"a100"}
    assert {"a100-sxm-40gb", "a100-pcie-80gb", None} <= {offer.device for offer in found}


def test_a_device_is_found_by_id_and_alias_and_excludes_offers_that_do_not_say() -> None:
    by_id = search(OfferQuery(gpu="a100-sxm-40gb", all_regions=True))
    assert by_id
    assert {offer.device for offer in by_id} == {"a100-sxm-40gb"}
    alias = next(alias for alias in devices()["a100-sxm-40gb"].aliases)
    assert search(OfferQuery(gpu=alias, all_regions=True)) == by_id


def test_a_known_device_without_offers_gives_nothing() -> None:
    assert search(OfferQuery(gpu="k40", all_regions=True)) == ()


def test_filters() -> None:
    query = OfferQuery(
        gpu="h100", count=8, cloud=("aws", "Lambda"), region=("us-east-1", "US-WEST-2"), max_price=60
    )
    found = search(query)
    assert found
    for offer in found:
        assert offer.family == "h100"
        assert offer.count == 8
        assert offer.provider in {"aws", "lambda"}
        assert offer.region in {"us-east-1", "us-west-2"}
        assert offer.usd_per_hour <= 60


def test_spot_compares_spot_prices() -> None:
    found = search(OfferQuery(gpu="t4", spot=True, max_price=0.2, all_regions=True))
    prices = [offer.price(spot=True) for offer in found]
    assert prices == sorted(prices)
    assert prices
    assert max(prices) <= 0.2


def test_orders() -> None:
    by_price = [offer.usd_per_hour for offer in search(OfferQuery(gpu="l4", all_regions=True))]
    assert by_price == sorted(by_price)
    per_gpu = [
        offer.usd_per_device_hour
        for offer in search(OfferQuery(gpu="l4", sort="price-per-gpu", all_regions=True))
    ]
    assert per_gpu == sorted(per_gpu)
    clouds = [offer.provider for offer in search(OfferQuery(gpu="l4", sort="cloud", all_regions=True))]
    assert clouds == sorted(clouds)
    gpus = [
        (offer.family, offer.device or "")
        for offer in search(OfferQuery(cloud=("aws",), sort="gpu", all_regions=True))
    ]
    assert gpus == sorted(gpus)


def test_limit_and_cheapest_region() -> None:
    everywhere = search(OfferQuery(cloud=("aws",), gpu="a100", all_regions=True))
    once = search(OfferQuery(cloud=("aws",), gpu="a100"))
    assert sorted(offer.instance for offer in once) == ["p4d.24xlarge", "p4de.24xlarge"]
    for offer in once:
        assert offer.usd_per_hour == min(o.usd_per_hour for o in everywhere if o.instance == offer.instance)
    assert search(OfferQuery(cloud=("aws",), gpu="a100", limit=3, all_regions=True)) == everywhere[:3]


def test_offers_of_the_past_are_found_only_when_asked_for() -> None:
    assert not any(offer.historical for offer in search(OfferQuery(all_regions=True)))
    past = {
        (offer.provider, offer.instance): (offer.device, offer.count, offer.usd_per_hour, offer.as_of)
        for offer in search(OfferQuery(historical=True, all_regions=True))
        if offer.historical
    }
    assert past[("azure", "Standard_NC6")] == ("k80", 1, 0.56, "2019")
    assert past[("azure", "Standard_NC12")] == ("k80", 2, 1.13, "2019")
    assert past[("azure", "Standard_NC24")] == ("k80", 4, 2.25, "2019")
    assert past[("azure", "Standard_NC24X")] == ("k80", 8, 4.48, "2019")
    assert past[("azure", "Standard_NV6")] == ("m60", 1, 0.62, "2019")
    assert past[("azure", "Standard_NV24X")] == ("m60", 8, 4.96, "2019")
    assert past[("gcp", "attached-1xK80")] == ("k80", 1, 0.45, "2021")
    assert past[("gcp", "attached-1xP100")] == ("p100-pcie", 1, 1.46, "2021")
    assert past[("lambda", "gpu.4x")] == ("gtx1080ti", 4, 1.5, "2019")
    assert past[("in-house", "server-1")] == ("p600", 2, 0.11, "2019")
    assert past[("in-house", "server-2")] == ("gtx1080ti", 8, 1.13, "2019")
    assert past[("in-house", "server-3")] == ("p600", 8, 0.44, "2019")


def test_an_instance_of_the_past_is_found_by_name() -> None:
    (offer,) = offers_named("lambda:gpu.4x")
    assert offer.historical
    assert offer.usd_per_device_hour == 0.375


@pytest.mark.parametrize(
    ("query", "kind", "near"),
    [
        ({"gpu": "a1000"}, "GPU", "a100"),
        ({"cloud": ("awz",)}, "cloud", "aws"),
        ({"cloud": ("aws",), "region": ("us-east-11",)}, "region", "us-east-1"),
    ],
)
def test_unknown_names_come_with_near_ones(query: dict[str, str], kind: str, near: str) -> None:
    with pytest.raises(UnknownName) as caught:
        search(OfferQuery(**query))  # type: ignore[arg-type]
    assert caught.value.kind == kind
    assert near in caught.value.near


def test_unknown_instances_and_orders() -> None:
    with pytest.raises(UnknownName, match=r"p4d\.24xlarge"):
        offers_named("aws:p4d.24xlarg")
    with pytest.raises(UnknownName, match="price-per-gpu"):
        OfferQuery(sort="price-per")


@pytest.mark.parametrize("name", ["p4d.24xlarge", "aws:", ":p4d.24xlarge", ""])
def test_a_name_that_is_not_provider_and_instance(name: str) -> None:
    with pytest.raises(InvalidRequest, match="is not provider:instance"):
        offers_named(name)


def test_an_instance_name_may_hold_colons() -> None:
    assert offer_named("fluidstack:H100_NVLINK_80GB::8").count == 8


def test_a_region_of_another_cloud_contradicts_the_cloud() -> None:
    with pytest.raises(InvalidRequest, match=r"`region` us-central1 is of gcp .*not of `cloud` aws"):
        search(OfferQuery(cloud=("aws",), region=("us-central1",), all_regions=True))
    with pytest.raises(UnknownName, match=r"no region 'us-cenral1'; did you mean us-central1"):
        search(OfferQuery(cloud=("gcp",), region=("us-cenral1",), all_regions=True))


def test_filters_that_contradict_each_other_are_named_and_no_others() -> None:
    query = OfferQuery(gpu="rtx4090", cloud=("aws",), spot=True, count=1)
    assert not search(query)
    named = contradiction(query)
    assert re.match(
        "no offer has both `cloud` aws and `gpu` rtx4090; without `cloud`: .*runpod.*; without `gpu`: ", named
    )
    assert contradiction(replace(query, cloud=("runpod",), spot=False)) == ""
    assert re.match(r"no offer has `max_price` 0.01 USD; without `max_price`: [\d.]+ USD an hour and more",
                    contradiction(OfferQuery(gpu="h100", max_price=0.01)))  # fmt: skip
    assert contradiction(OfferQuery(cloud=("aws",)), gpus=("rtx4090", "t4")) == ""


@pytest.mark.parametrize("query", [{"count": 0}, {"limit": 0}, {"max_price": 0.0}])
def test_impossible_queries_are_refused(query: dict[str, int]) -> None:
    with pytest.raises(InvalidRequest, match="must be"):
        OfferQuery(**query)  # type: ignore[arg-type]


def test_an_offer_without_spot_price_says_so() -> None:
    offer = offer_named("lambda:gpu_8x_a100")
    with pytest.raises(InvalidRequest, match="lambda:gpu_8x_a100 has no spot price"):
        offer.price(spot=True)


# ---- outliers ---------------------------------------------------------------------------------------------


def market(provider: str, usd: float, count: int = 1, region: str = "r", spot: float | None = None) -> Offer:
    return Offer(provider, "m", "t4", "t4", count, 8, GIB, region, usd, spot, "2026-01", False, "test")


def test_a_price_ten_times_off_the_market_is_not_believed() -> None:
    """Medians 1, 1 and 2 dollars: 1 is typical, and 0.1 to 10 are believed."""
    others = [market("a", 1.0), market("b", 1.0), market("c", 2.0)]
    assert without_outliers([market("d", 0.11), market("e", 9.9)], others)[1] == ()
    kept, outliers = without_outliers([market("d", 0.09), market("e", 8.8, count=8)], others)
    assert [offer.provider for offer in kept] == ["e"]
    (outlier,) = outliers
    assert (outlier.usd_per_device_hour, outlier.typical_usd_per_device_hour) == (0.09, 1.0)
    assert "$0.09 per t4 and hour on demand, where $1 is typical" in str(outlier)


def test_two_providers_make_no_market() -> None:
    assert without_outliers([market("a", 1.0), market("b", 100.0)])[1] == ()


def test_a_region_three_times_off_the_others_is_not_believed() -> None:
    regions = [market("a", usd, region=name) for name, usd in (("x", 1.0), ("y", 1.1), ("z", 3.5))]
    kept, outliers = without_outliers(regions)
    assert [offer.region for offer in kept] == ["x", "y"]
    assert [outlier.offer.region for outlier in outliers] == ["z"]


def test_an_unbelievable_spot_price_leaves_the_offer() -> None:
    others = [market(name, 1.0, spot=0.5) for name in "abc"]
    (kept,), (outlier,) = without_outliers([market("d", 1.0, spot=0.01)], others)
    assert kept == market("d", 1.0)
    assert outlier.spot


# ---- files ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "row"),
    [
        ("instance,price\n", 1),
        ("", 1),
        (",".join(offers_module.USER_COLUMNS) + "\naws,2027-01\n", 2),
        (",".join(offers_module.USER_COLUMNS) + "\naws,2027-01,s,i,t4,t4,x,1,1,r,1,\n", 2),
        (",".join(offers_module.USER_COLUMNS) + "\naws,2027-01,s,i,t4,t4,1,1,1,r,-1,\n", 2),
    ],
)
def test_a_damaged_file_of_imported_prices_is_named_with_its_row(text: str, row: int) -> None:
    user_offers_file().parent.mkdir(parents=True, exist_ok=True)
    user_offers_file().write_text(text)
    with pytest.raises(InvalidData, match=rf"offers\.csv, row {row}") as caught:
        all_offers()
    assert caught.value.row == row


def test_offers_survive_being_written_and_read() -> None:
    offer = offer_named("gcp:a2-highgpu-1g")
    user_offers_file().write_text(
        ",".join(offers_module.USER_COLUMNS)
        + "\n"
        + ",".join(("gcp", "2027-01-01", "test", *offers_module.offer_fields(offer)))
        + "\n"
    )
    assert offers_named("gcp:a2-highgpu-1g") == (replace(offer, as_of="2027-01-01", source="test"),)


def shipped_from(data: Path, provider: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Offer, ...]:
    """The offers of a data directory whose one provider is the folder `new` with this provider.toml."""
    folder = data / "providers" / "new"
    folder.mkdir(parents=True)
    (folder / "provider.toml").write_text(provider)
    (folder / "offers_2027.csv").write_text(",".join(offers_module.OFFER_COLUMNS) + "\nm,t4,t4,2,,,r,1.5,\n")
    monkeypatch.setattr(providers_module, "data_root", lambda: data)
    monkeypatch.setattr(offers_module, "shipped_providers", providers_module.shipped_providers.__wrapped__)
    return shipped_offers.__wrapped__()


def test_a_new_cloud_is_one_new_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    toml = 'id = "new"\nname = "New"\n[[offers]]\nfile = "offers_2027.csv"\nas_of = "2027"\nsource = "s"\n'
    (offer,) = shipped_from(tmp_path, toml, monkeypatch)
    assert offer == Offer("new", "m", "t4", "t4", 2, None, None, "r", 1.5, None, "2027", False, "s")


@pytest.mark.parametrize(
    ("toml", "problem"),
    [
        ('id = "old"\nname = "x"', "the id 'new'"),
        ('id = "new"', "must state a name"),
        ('id = "new"\nname = "x"\n[[offers]]\nfile = "f"', "as_of"),
        ('id = "new"\nname = "x"\n[[left_out]]\nname = "tpu"', "reason"),
        ('id = "new"\nname = "x"\n[[accelerators]]\nname = "T4"', "either a device or a family"),
        ('id = "new"\nname = "x"\n[[billing]]\nkind = "hearsay"', "needs a kind"),
        ('id = "new"\nname = "x"\n[[billing]]\nkind = "spec"\ngranularity_seconds = 1', "source"),
        ('id = "new"\nname = ', "not valid TOML"),
    ],
)
def test_a_malformed_provider_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, toml: str, problem: str
) -> None:
    with pytest.raises(InvalidData, match=problem):
        shipped_from(tmp_path, toml, monkeypatch)
