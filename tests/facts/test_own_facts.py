"""Devices and prices of the user's own: checked like the shipped ones, kept, used, forgotten."""

from __future__ import annotations

from datetime import date
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from foretrain.errors import ForetrainError, InvalidData, InvalidRequest, MissingData, UnknownName
from foretrain.facts.devices import device, devices, user_devices_dir
from foretrain.facts.explanation import explain
from foretrain.facts.hardware import hardware, nodes
from foretrain.facts.offers import all_offers, offer_named, search, shipped_offers
from foretrain.facts.options import OfferQuery
from foretrain.facts.own_facts import add_device, add_offers, forget_device, forget_offers
from foretrain.facts.price_files import import_prices
from foretrain.facts.providers import providers
from foretrain.facts.sheets import data_root, read_toml
from foretrain.registry import normalise

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
SHEET = (EXAMPLES / "lab_x1.toml").read_text()
TODAY = date(2026, 11, 18)
HEADER = "provider,instance,device,count,usd_per_hour"


def sheet(folder: Path, *changes: tuple[str, str]) -> Path:
    text = SHEET
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (folder / "mine.toml").write_text(text)
    return folder / "mine.toml"


def offers(folder: Path, *rows: str, header: str = HEADER) -> Path:
    (folder / "mine.csv").write_text("\n".join((header, *rows)) + "\n")
    return folder / "mine.csv"


# ---------------------------------------------------------------- devices


def test_a_device_of_ones_own_is_used_like_the_others(tmp_path: Path) -> None:
    added = add_device(sheet(tmp_path))
    assert (added.done, added.device.is_own) == ("added", True)
    assert hardware("X1 80GB:8").device.id == "lab-x1"
    assert device("lab-x1").memory_bytes == 80 * 2**30
    explained = explain("lab-x1")
    assert [(each.id, each.licence) for each in explained.sources] == [
        ("quote of the vendor, 2026-10", "yours")
    ]
    replaced = add_device(sheet(tmp_path, ("tdp_watts = 350", "tdp_watts = 400")))
    assert (replaced.done, device("lab-x1").tdp_watts) == ("replaced", 400)
    assert forget_device("x1 80gb").device.id == "lab-x1"
    assert "lab-x1" not in devices()
    assert list(user_devices_dir().iterdir()) == []


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ('id = "lab-x1"', "", "must state id as text"),
        ('id = "lab-x1"', 'id = "Lab/X1"', "must be of lower-case letters"),
        ('id = "lab-x1"', 'id = "h100-sxm"', "'h100-sxm' is h100-sxm already"),
        ('id = "lab-x1"', 'id = "cpu"', "CPU of this machine"),
        ('id = "lab-x1"', 'id = "dgx-h100"', "is a machine or a provider"),
        ('id = "lab-x1"', 'id = "lab.yaml"', "must be of lower-case letters"),
        ('kind = "gpu"', 'kind = "tpu"', "kind = 'tpu' is none of gpu, cpu"),
        ('["X1 80GB"]', '["Tesla T4"]', "'Tesla T4' is t4 already"),
        ('["X1 80GB"]', '"X1"', "is no list of texts"),
        ('family = "lab-x1"', 'family = "t4"', "also the name of a family of 2"),
        ('per = "board"', 'per = "board"\ncolour = "red"', "colour is no key of a device"),
        ("tdp_watts = 350", "", "a gpu must state tdp_watts"),
        ("tdp_watts = 350", "tdp_watts = 350e6", "outside"),
        ("tdp_watts = 350", "watts = 350", "watts is no quantity"),
        ("tdp_watts = 350", 'tdp_watts = "350 W"', "but its unit is W"),
        ("tdp_watts = 350", "tdp_watts = [350]", "neither a number nor a text"),
        ("pcie_lanes = 16", "pcie_lanes = 12", "12 PCIe lanes"),
        ("fp32_flop_per_second = 60e12", "fp32_flop_per_second = 90e12", "FP32 peak 9e\\+13, but 2 x 120"),
        ("memory_bytes_per_second = 2000e9", "memory_bytes_per_second = 20e9", "for HBM3"),
        ('source = "quote of the vendor, 2026-10"', "", "needs a source and a kind"),
        ('source = "quote of the vendor, 2026-10"', 'source = " "', "cites ' '"),
        ("[[facts]]", "[facts]", r"facts must be \[\[facts\]\] blocks"),
        ("[[facts]]", "[[facts", "not valid TOML"),
    ],
)
def test_a_wrong_sheet_is_refused_and_nothing_is_kept(
    tmp_path: Path, old: str, new: str, complaint: str
) -> None:
    with pytest.raises(InvalidData, match=complaint):
        add_device(sheet(tmp_path, (old, new)))
    assert not user_devices_dir().exists()


def test_what_cannot_be_added_or_forgotten(tmp_path: Path) -> None:
    with pytest.raises(MissingData, match="there is no file"):
        add_device(tmp_path / "none.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidData, match="not valid TOML"):
        add_device(tmp_path / "bytes.toml")
    with pytest.raises(InvalidRequest, match=r"t4 comes with foretrain; .*you have added none"):
        forget_device("t4")
    with pytest.raises(UnknownName, match="no device 'lab-x1'"):
        forget_device("lab-x1")


def test_a_device_that_an_own_offer_has_is_not_forgotten(tmp_path: Path) -> None:
    add_device(sheet(tmp_path))
    add_offers(offers(tmp_path, "lab,x1-8,lab-x1,8,3.5"), TODAY)
    with pytest.raises(InvalidRequest, match="foretrain offers forget lab:x1-8"):
        forget_device("lab-x1")
    forget_offers("lab:x1-8")
    assert forget_device("lab-x1").done == "forgotten"


def test_a_name_that_ships_later_means_the_shipped_device() -> None:
    """Sheets kept by an earlier version: one has an alias, another the id, of a device that ships now."""
    folder = user_devices_dir()
    folder.mkdir(parents=True)
    (folder / "lab-x1.toml").write_text(SHEET.replace("X1 80GB", "Tesla T4"))
    (folder / "l4.toml").write_text(SHEET.replace('id = "lab-x1"', 'id = "l4"').replace("X1 80GB", "x9"))
    devices.cache_clear()
    assert device("Tesla T4").id == "t4"
    assert (device("lab-x1").is_own, device("l4").is_own) == (True, False)


# ---------------------------------------------------------------- offers


def test_offers_of_a_private_cloud() -> None:
    added = add_offers(EXAMPLES / "lab_offers.csv", TODAY)
    assert (len(added.offers), added.replaced, added.unusual) == (2, 0, ())
    (first, second) = search(OfferQuery(cloud=("lab",), all_regions=True))
    assert (first.instance, first.usd_per_hour, first.as_of) == ("a100-8", 9.5, "2026-11-01")
    assert hardware("lab:h100-8:4").devices == 32
    assert [each.id for each in explain("lab:h100-8").sources] == ["user-offers"]
    assert providers()["lab"].billing_terms("h100-8").granularity_seconds == 0
    assert len(all_offers()) == len(shipped_offers()) + 2
    assert forget_offers("LAB:A100-8").offers == (first,)
    assert forget_offers("lab").offers == (second,)
    assert all_offers() == tuple(sorted(shipped_offers(), key=lambda each: (each.provider, each.historical)))
    assert "lab" not in providers()


def test_a_negotiated_price_stands_in_place_of_the_known_one_and_survives_an_import(tmp_path: Path) -> None:
    known = offer_named("aws:p4d.24xlarge")
    row = f"aws,p4d.24xlarge,a100-sxm-40gb,8,{known.usd_per_hour / 2:.5f},{known.region}"
    added = add_offers(offers(tmp_path, row, header=f"{HEADER},region"), TODAY)
    assert added.replaced == 1
    own = offer_named("aws:p4d.24xlarge")
    assert own.usd_per_hour == pytest.approx(known.usd_per_hour / 2)
    assert own.as_of == "2026-11-18"
    assert len(all_offers()) == len(shipped_offers())
    newer = tmp_path / "prices_2026-11-20.csv"
    newer.write_text(
        "cloud,InstanceType,AcceleratorName,AcceleratorCount,Region,vCPUs,MemoryGiB,Price,SpotPrice\n"
        f"aws,p4d.24xlarge,A100,8,{known.region},96,1152,{known.usd_per_hour},\n"
    )
    import_prices(newer)
    assert offer_named("aws:p4d.24xlarge") == own
    forget_offers("aws")
    assert offer_named("aws:p4d.24xlarge").as_of == "2026-11-20"


def test_a_price_far_from_the_market_is_kept_and_reported(tmp_path: Path) -> None:
    added = add_offers(offers(tmp_path, "lab,free,h100-sxm,8,0.08"), TODAY)
    assert ["$0.01 per h100" in str(each) for each in added.unusual] == [True]
    assert offer_named("lab:free").usd_per_hour == 0.08


@pytest.mark.parametrize(
    ("header", "row", "complaint"),
    [
        (
            "provider,instance,device,count",
            "lab,x,t4,1",
            "row 1: missing columns usd_per_hour; give",
        ),
        (f"{HEADER},price", "lab,x,t4,1,1,1", "unknown columns price; known: region"),
        (HEADER, "Lab Nord,x,t4,1,1", "row 2: the provider 'Lab Nord' must be"),
        (HEADER, "lab,a:b,t4,1,1", "row 2: the instance 'a:b'"),
        (HEADER, "lab,x,t5,1,1", "row 2: no device 't5'"),
        (HEADER, "lab,x,tpu-v4,1,1", "row 2: foretrain has no model of TPU v4"),
        (HEADER, "lab,x,h100,1,1", "row 2: 'h100' is a family of devices"),
        (HEADER, "lab,x,t4,0,1", "row 2: 0 devices for 1 USD"),
        (HEADER, "lab,x,t4,1.5,1", "row 2: no offer"),
        (HEADER, "lab,x,t4,1,0", "row 2: 1 devices for 0 USD"),
        (HEADER, "lab,x,t4,1,nan", "cannot be"),
        (HEADER, "lab,x,t4,1,$2", "row 2: no offer"),
        (HEADER, "lab,x,t4,1", "row 2: 4 fields where the header has 5"),
        (HEADER, "", "holds a header and no offers"),
        (HEADER, "lab,x,t4,1,1\nlab,x,t4,2,1", "row 3: the same machine and region as row 2"),
        (f"{HEADER},spot_usd_per_hour", "lab,x,t4,1,1,2", "spot_usd_per_hour 2 is not between"),
        (f"{HEADER},vcpus", "lab,x,t4,1,1,-4", "vcpus -4 must be above 0"),
        (f"{HEADER},as_of", "lab,x,t4,1,1,yesterday", "row 2: Invalid isoformat"),
    ],
)
def test_a_wrong_row_is_named_and_nothing_is_kept(
    tmp_path: Path, header: str, row: str, complaint: str
) -> None:
    with pytest.raises(InvalidData, match=complaint.replace("$", r"\$")):
        add_offers(offers(tmp_path, row, header=header), TODAY)
    assert all_offers() is shipped_offers()


def test_forgetting_what_is_not_there_names_what_is(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match=r"no offer of yours 'aws'\. You have added none"):
        forget_offers("aws")
    add_offers(offers(tmp_path, "lab,x,t4,1,1"), TODAY)
    with pytest.raises(UnknownName, match="Yours: lab:x"):
        forget_offers("aws")


# ---------------------------------------------------------------- accelerators without a model


@pytest.mark.parametrize(
    ("name", "called"),
    [
        ("tpu-v5e", "TPU v5e"), ("TPU v5e:8", "TPU v5e"), ("tpu:v5p", "TPU v5p"), ("v6e-8", "TPU v6e"),
        ("google tpu", "TPU"), ("trn1.32xlarge", "AWS Trainium"), ("aws:trn2.48xlarge", "AWS Trainium"),
        ("aws:inf2.xlarge:2", "AWS Inferentia"), ("Gaudi 2:8", "Intel Gaudi"),
        ("dl1.24xlarge", "Intel Gaudi"),
        ("mps", "Apple silicon"), ("M3 Max", "Apple silicon"), ("Apple M2 Ultra", "Apple silicon"),
        ("cs-3", "Cerebras WSE"), ("Bow IPU", "Graphcore IPU"), ("Ascend 910B", "Huawei Ascend"),
    ],
)  # fmt: skip
def test_a_known_accelerator_without_a_model_is_a_sentence_of_its_own(name: str, called: str) -> None:
    with pytest.raises(MissingData, match=rf"foretrain has no model of {called}.*foretrain devices add"):
        hardware(name)


def test_filters_and_explanations_know_them_too() -> None:
    with pytest.raises(MissingData, match="no model of TPU"):
        search(OfferQuery(gpu="tpu", all_regions=True))
    with pytest.raises(MissingData, match="no model of Intel Gaudi"):
        explain("gaudi3")


def test_misspelt_gpus_are_still_unknown_names() -> None:
    for name in ("h100-sxn", "a1000x", "mi3000", "rtx9999", "m", "v5"):
        with pytest.raises(ForetrainError) as raised:
            hardware(name)
        assert isinstance(raised.value, UnknownName), name


def test_no_pattern_hides_a_device_a_machine_or_an_instance() -> None:
    entries = read_toml(data_root() / "unmodelled.toml")["accelerators"]
    patterns = [each for entry in entries for each in entry["names"]]
    names = [name for each in devices().values() for name in (each.id, each.family, *each.aliases)]
    names += [*nodes(), *{offer.instance for offer in shipped_offers()}]
    hidden = {name for name in names for each in patterns if fnmatchcase(normalise(name), each)}
    assert hidden == set()
