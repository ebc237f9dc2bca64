"""Importing price files: what is taken over, what is refused, and that nothing is ever half done."""

from __future__ import annotations

import gzip
import multiprocessing
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from foretrain.errors import InvalidData, InvalidRequest, MissingData
from foretrain.facts import offers
from foretrain.facts.offers import all_offers, offers_named, search, shipped_offers
from foretrain.facts.options import OfferQuery
from foretrain.facts.price_files import PriceChanges, import_prices

HEADER = "cloud,InstanceType,AcceleratorName,AcceleratorCount,Region,vCPUs,MemoryGiB,Price,SpotPrice"
GOOD = "aws,p4d.24xlarge,A100,8.0,us-east-1,96.0,1152.0,20.0,8.0"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "new home"
    monkeypatch.setenv("FORETRAIN_HOME", str(directory))
    return directory


def price_file(tmp_path: Path, *rows: str, name: str = "prices_2027_01_15.csv", header: str = HEADER) -> Path:
    file = tmp_path / name
    file.write_text("\n".join((header, *rows)) + "\n")
    return file


# ---- what is taken over -----------------------------------------------------------------------------------


def test_newer_prices_replace_those_of_their_cloud_only(tmp_path: Path) -> None:
    report = import_prices(price_file(tmp_path, GOOD))
    assert report.offers_by_cloud == (("aws", 1),)
    assert (report.rows, report.offers, report.as_of) == (1, 1, "2027-01-15")
    (offer,) = search(OfferQuery(cloud=("aws",), all_regions=True))
    assert (offer.usd_per_hour, offer.spot_usd_per_hour, offer.as_of) == (20.0, 8.0, "2027-01-15")
    assert offer.source == "user-import"
    others = [offer for offer in all_offers() if offer.provider != "aws"]
    assert others == [offer for offer in shipped_offers() if offer.provider != "aws"]


def test_offers_of_the_past_stay(tmp_path: Path) -> None:
    import_prices(price_file(tmp_path, "azure,Standard_NC4as_T4_v3,T4,1,eastus,4,28,0.5,"))
    assert [offer.as_of for offer in offers_named("azure:Standard_NC6")] == ["2019"]


def test_compressed_files_further_columns_and_blank_lines(tmp_path: Path) -> None:
    file = tmp_path / "prices-2027-01-15.csv.gz"
    file.write_bytes(gzip.compress(f"zone,{HEADER}\na,{GOOD}\n\n".encode()))
    assert import_prices(file).offers_by_cloud == (("aws", 1),)


def test_zones_of_a_region_become_one_offer_at_the_lowest_prices(tmp_path: Path) -> None:
    cheaper_spot = GOOD.replace("20.0,8.0", "21.0,7.0")
    import_prices(price_file(tmp_path, GOOD, cheaper_spot))
    (offer,) = search(OfferQuery(cloud=("aws",), all_regions=True))
    assert (offer.usd_per_hour, offer.spot_usd_per_hour) == (20.0, 7.0)


def test_gcp_machines_in_the_file_are_used_before_the_shipped_ones(tmp_path: Path) -> None:
    """Two A100 at 3 dollars each in a2-highgpu-2g, twice the a2-highgpu-1g of 1 dollar: 8 dollars."""
    file = price_file(
        tmp_path,
        "gcp,,A100,2,us-central1,,,6.0,3.0",
        "gcp,a2-highgpu-1g,,,us-central1,12,85,1.0,0.5",
        "gcp,,A100,2,us-west1,,,6.0,3.0",
        "gcp,e2-standard-4,,,us-central1,4,16,0.1,0.05",
    )
    report = import_prices(file)
    found = offers_named("gcp:a2-highgpu-2g")
    prices = {offer.region: (offer.usd_per_hour, offer.spot_usd_per_hour) for offer in found}
    assert prices["us-central1"] == (8.0, 4.0)
    assert prices["us-west1"] == pytest.approx((6 + 2 * 0.73948, 3 + 2 * 0.36975), abs=1e-5)
    (machines,) = report.skipped
    assert (machines.reason, machines.rows) == ("a machine without accelerators", 2)


def test_skipped_rows_are_counted_by_name_and_reason(tmp_path: Path) -> None:
    report = import_prices(
        price_file(
            tmp_path,
            GOOD,
            "aws,x9.large,Zeta9000,1,us-east-1,8,32,1.0,",
            "aws,x9.xlarge,Zeta9000,2,us-east-1,8,32,2.0,",
            "aws,inf2.xlarge,Inferentia2,1,us-east-1,4,16,0.76,",
            "aws,g6f.large,L4,0.125,us-east-1,2,8,0.2,",
            "aws,p5e.48xlarge,H200,8,us-east-1,192,2048,,30",
        )
    )
    assert {(skip.accelerator, skip.rows): skip.reason for skip in report.skipped} == {
        ("Zeta9000", 2): "no device is mapped to this accelerator",
        ("Inferentia2", 1): "an inference accelerator, no GPU",
        ("L4", 1): "a fraction of a device",
        ("H200", 1): "no on-demand price",
    }
    assert report.offers == 1


def test_useless_spot_prices_and_outliers_are_reported(tmp_path: Path) -> None:
    report = import_prices(
        price_file(
            tmp_path,
            GOOD.replace("20.0,8.0", "20.0,20.5"),
            "aws,p5.48xlarge,H100,8,us-east-1,192,2048,0.55,",
        )
    )
    assert report.spot_prices_dropped == 1
    assert [outlier.offer.instance for outlier in report.outliers] == ["p5.48xlarge"]
    (offer,) = search(OfferQuery(cloud=("aws",), all_regions=True))
    assert (offer.instance, offer.spot_usd_per_hour) == ("p4d.24xlarge", None)


# ---- dates ------------------------------------------------------------------------------------------------


def test_older_prices_do_not_replace_newer_ones(tmp_path: Path) -> None:
    before = all_offers()
    report = import_prices(price_file(tmp_path, GOOD), as_of=date(2024, 1, 1))
    assert (report.older, report.offers) == (("aws",), 0)
    assert all_offers() == before


def test_a_second_import_competes_with_the_first(tmp_path: Path) -> None:
    import_prices(price_file(tmp_path, GOOD), as_of=date(2027, 3, 1))
    assert import_prices(price_file(tmp_path, GOOD.replace("20.0", "22.0")), date(2027, 2, 1)).offers == 0
    assert search(OfferQuery(cloud=("aws",), all_regions=True))[0].usd_per_hour == 20.0
    assert import_prices(price_file(tmp_path, GOOD.replace("20.0", "22.0")), date(2027, 4, 1)).offers == 1
    assert search(OfferQuery(cloud=("aws",), all_regions=True))[0].usd_per_hour == 22.0


@pytest.mark.parametrize(
    ("name", "as_of"),
    [
        ("gpu_offers_2027_03.csv", "2027-03"),
        ("gpu_offers_2027_03_09.csv", "2027-03-09"),
        ("2027-03-09.csv", "2027-03-09"),
        ("prices 2027-03-09 final.csv", "2027-03-09"),
    ],
)
def test_the_date_in_the_name(tmp_path: Path, name: str, as_of: str) -> None:
    assert import_prices(price_file(tmp_path, GOOD, name=name)).as_of == as_of


def test_a_month_is_not_older_than_a_day_in_it(tmp_path: Path) -> None:
    assert import_prices(price_file(tmp_path, GOOD, name="prices_2026_08.csv")).offers == 1
    assert search(OfferQuery(cloud=("aws",), all_regions=True))[0].as_of == "2026-08"


@pytest.mark.parametrize(
    "name", ["prices.csv", "prices_202701.csv", "prices_2027_13.csv", "p_2027_02_30.csv"]
)
def test_a_name_without_a_date_asks_for_one(tmp_path: Path, home: Path, name: str) -> None:
    with pytest.raises(InvalidRequest, match=r"give the date|holds the date"):
        import_prices(price_file(tmp_path, GOOD, name=name))
    assert not home.exists()


# ---- what is refused --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        (GOOD.replace("20.0", "-20.0"), "Price is -20.0, below 0"),
        (GOOD.replace("8.0", "-1"), "AcceleratorCount is -1, below 0"),
        (GOOD.replace("20.0", "cheap"), "Price is 'cheap', not a number"),
        (GOOD.replace("20.0", "nan"), "Price is 'nan', not a number"),
        (GOOD.replace("20.0", "inf"), "Price is 'inf', not a number"),
        (GOOD.replace("20.0,8.0", "20.0,-8.0"), "SpotPrice is -8.0, below 0"),
        (GOOD.replace(",8.0,us", ",0,us"), "AcceleratorCount is '0', not above 0"),
        (GOOD.replace(",8.0,us", ",,us"), "AcceleratorCount is '', not above 0"),
        (GOOD.replace("96.0", "many"), "vCPUs is 'many', not a number"),
        (GOOD.replace("aws", ""), "the cloud is empty"),
        (GOOD.replace("aws", "awz"), "no cloud 'awz'; did you mean aws"),
        (GOOD.replace("p4d.24xlarge", ""), "the InstanceType is empty"),
        (GOOD + ",1", "10 fields where the header has 9"),
        ("aws,p4d.24xlarge", "2 fields where the header has 9"),
        ('aws,"p4d', "not valid CSV"),
    ],
)
def test_a_bad_row_is_named_and_nothing_is_imported(
    tmp_path: Path, home: Path, bad: str, problem: str
) -> None:
    """The header is row 1, a good row is row 2, the bad one row 3."""
    import_prices(price_file(tmp_path, GOOD))
    before = (home / "offers.csv").read_bytes()
    with pytest.raises(InvalidData) as caught:
        import_prices(price_file(tmp_path, GOOD, bad, name="bad_2028_01.csv"))
    assert problem in str(caught.value)
    assert (caught.value.file, caught.value.row) == ("bad_2028_01.csv", 3)
    assert (home / "offers.csv").read_bytes() == before


def test_missing_columns_are_named(tmp_path: Path, home: Path) -> None:
    file = price_file(tmp_path, GOOD, header=HEADER.replace("SpotPrice", "Spot").replace("Region", "Place"))
    with pytest.raises(InvalidData, match="row 1: missing columns Region, SpotPrice"):
        import_prices(file)
    assert not home.exists()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a_2027_01.csv", b""),
        ("a_2027_01.csv", HEADER.encode()),
        ("a_2027_01.csv", b"\xff\xfe\x00"),
        ("a_2027_01.csv.gz", b"not compressed"),
        ("a_2027_01.csv.gz", gzip.compress(HEADER.encode(), mtime=0)[:-9]),
    ],
    ids=["empty", "only a header", "not text", "not compressed", "cut short"],
)
def test_files_that_are_no_price_files(tmp_path: Path, home: Path, name: str, content: bytes) -> None:
    file = tmp_path / name
    file.write_bytes(content)
    with pytest.raises(InvalidData, match=name):
        import_prices(file)
    assert not home.exists()


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(MissingData, match="there is no file"):
        import_prices(tmp_path / "gone_2027_01.csv")


def test_a_home_that_cannot_be_written_to(tmp_path: Path, home: Path) -> None:
    home.write_text("a file where a directory should be")
    with pytest.raises(InvalidRequest, match="set FORETRAIN_HOME"):
        import_prices(price_file(tmp_path, GOOD))


# ---- never half done --------------------------------------------------------------------------------------


def test_importing_twice_changes_nothing(tmp_path: Path, home: Path) -> None:
    file = price_file(tmp_path, GOOD)
    first = import_prices(file)
    content = (home / "offers.csv").read_bytes()
    second = import_prices(file)
    assert second == replace(first, changes=PriceChanges(changed=0, new=0, gone=0, same=1))
    assert (home / "offers.csv").read_bytes() == content


def test_a_crash_while_writing_leaves_the_old_prices_and_no_litter(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import_prices(price_file(tmp_path, GOOD))
    before = (home / "offers.csv").read_bytes()

    def crash(_: object) -> tuple[str, ...]:
        raise KeyboardInterrupt

    monkeypatch.setattr(offers, "offer_fields", crash)
    with pytest.raises(KeyboardInterrupt):
        import_prices(price_file(tmp_path, GOOD.replace("20.0", "22.0"), name="b_2028_01.csv"))
    assert (home / "offers.csv").read_bytes() == before
    assert sorted(file.name for file in home.iterdir()) == ["offers.csv", "offers.lock"]


def test_concurrent_imports_keep_each_others_clouds(tmp_path: Path) -> None:
    clouds = {
        "aws": GOOD,
        "lambda": "lambda,gpu_1x_a10,A10,1,us-east-1,30,200,1.3,",
        "do": "do,gpu-h100x1-80gb,H100,1,tor1,20,240,6.5,",
        "oci": "oci,VM.GPU.A10.1,A10,1,x,30,240,2.1,",
    }
    files = [price_file(tmp_path, row, name=f"{cloud}_2027_01.csv") for cloud, row in clouds.items()]
    with multiprocessing.get_context("fork").Pool(len(files)) as pool:
        pool.map(import_prices, files)
    dates = {offer.provider: offer.as_of for offer in all_offers() if offer.as_of == "2027-01"}
    assert dates.keys() == clouds.keys()
