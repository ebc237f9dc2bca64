"""Newer prices through gpuhunt, on a recorded catalogue: files in its layout, as its project publishes them.

Prices are those of the shipped snapshot of 2026-08; the two rows that must be skipped cost 1 USD.
"""

from __future__ import annotations

import csv
import logging
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from foretrain.errors import BackendFailed, InvalidRequest, MissingData
from foretrain.facts import price_catalogues
from foretrain.facts.offers import all_offers, offers_named, shipped_offers
from foretrain.facts.price_catalogues import Catalogue, import_catalogue, price_rows
from foretrain.facts.price_files import PriceChanges, PriceRow, import_rows

RECORDED = Path(__file__).parent / "gpuhunt"
DAY = date(2026, 11, 17)


def items() -> Iterator[Any]:
    for file in sorted(RECORDED.glob("*.csv")):
        with file.open(newline="") as lines:
            for row in csv.DictReader(lines):
                numbers = {key: float(row[key]) for key in ("price", "cpu", "memory", "gpu_memory")}
                given = {
                    **row, **numbers, "gpu_count": int(row["gpu_count"]), "spot": row["spot"] == "True"
                }  # fmt: skip
                yield SimpleNamespace(provider=file.stem, **given)


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """gpuhunt's catalogue as it was on a day."""
    catalogue = Catalogue(tuple(items()), "2026-11-16", ("Failed to load oci catalog",))
    monkeypatch.setattr(price_catalogues, "CATALOGUES", {"gpuhunt": lambda: catalogue})


def test_on_demand_and_spot_price_of_one_machine_are_one_row() -> None:
    rows, skipped = price_rows(items())
    of = {(row.cloud, row.instance, row.region): row for row in rows}
    assert replace(of["aws", "p4d.24xlarge", "us-east-1"], number=0) == PriceRow(
        0, "aws", "p4d.24xlarge", "A100", 8, "us-east-1", 96, 1152, 21.95764, 10.1302
    )
    assert of["gcp", "a2-ultragpu-1g", "us-central1"].accelerator == "A100-80GB"
    assert ("gcp", "n1-standard-4+1xT4", "us-central1") in of
    assert of["lambda", "gpu_1x_a10", "us-east-1"].spot_usd_per_hour is None
    assert [(each.cloud, each.rows) for each in skipped] == [("cloudrift", 1)]


@pytest.mark.usefixtures("recorded")
def test_an_import_says_what_changed_and_of_which_date() -> None:
    report = import_catalogue("gpuhunt")
    assert (report.file, report.as_of) == ("gpuhunt", "2026-11-16")
    assert report.offers_by_cloud == (("aws", 6), ("gcp", 5), ("lambda", 2))
    # the recorded T4 has no spot price, and the shipped one has; other regions are not recorded
    current = [offer for offer in shipped_offers() if not offer.historical]
    listed = sum(offer.provider in {"aws", "gcp", "lambda"} for offer in current)
    assert report.changes == PriceChanges(changed=1, new=0, gone=listed - 13, same=12)
    assert {(each.cloud, each.reason) for each in report.skipped} == {
        ("gcp", "a TPU, no GPU"),
        ("cloudrift", "foretrain does not know this provider"),
    }
    assert report.complaints == ("Failed to load oci catalog",)
    assert {offer.as_of for offer in offers_named("aws:p5.48xlarge")} == {"2026-11-16"}
    assert {offer.as_of for offer in offers_named("azure:Standard_NC12")} == {"2026-08-22"}
    assert import_catalogue("gpuhunt", DAY).changes == PriceChanges(0, 0, 0, 13)


def test_a_price_that_moved_is_counted_once() -> None:
    rows, _ = price_rows(items())
    import_rows(rows, "2026-11-16", "gpuhunt")
    cheaper = [replace(row, usd_per_hour=row.usd_per_hour * 0.9) if row.cloud == "lambda" and row.count == 8
               and row.usd_per_hour else row for row in rows if row.instance != "gpu_1x_a10"]  # fmt: skip
    assert import_rows(cheaper, "2026-11-17", "gpuhunt").changes == PriceChanges(1, 0, 1, 11)


def test_what_no_catalogue_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(price_catalogues, "CATALOGUES", {"gpuhunt": lambda: Catalogue(tuple(items()), None)})
    with pytest.raises(InvalidRequest, match="does not say when its prices were taken"):
        import_catalogue("gpuhunt")
    monkeypatch.setattr(price_catalogues, "CATALOGUES", {"gpuhunt": lambda: Catalogue((), "2026-11-16")})
    with pytest.raises(BackendFailed, match="gave no prices: it lists no GPU"):
        import_catalogue("gpuhunt")
    assert all_offers() is shipped_offers()


def test_a_package_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gpuhunt", None)
    with pytest.raises(MissingData, match="pip install gpuhunt"):
        import_catalogue("gpuhunt")


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_the_package_itself_reads_the_recorded_catalogue(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which leaves the files open."""
    pytest.importorskip("gpuhunt", reason="an optional package")
    monkeypatch.setenv("GPUHUNT_CATALOG_DIR", str(RECORDED))
    report = import_catalogue("gpuhunt", DAY)
    assert report.offers_by_cloud == (("aws", 6), ("gcp", 5), ("lambda", 2))
    assert logging.getLogger("gpuhunt").propagate


def test_the_package_downloads_the_catalogue_as_it_is_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`PROVIDER/version` names the latest, `PROVIDER/VERSION/catalog.zip` holds `PROVIDER.csv`."""
    pytest.importorskip("gpuhunt", reason="an optional package")
    for number, file in enumerate(sorted(RECORDED.glob("*.csv"))):
        version = f"2026111{7 - number}-12"
        folder = tmp_path / file.stem / version
        folder.mkdir(parents=True)
        (folder.parent / "version").write_text(f"{version}\n")
        with zipfile.ZipFile(folder / "catalog.zip", "w") as archive:
            archive.write(file, file.name)
    monkeypatch.delenv("GPUHUNT_CATALOG_DIR", raising=False)
    monkeypatch.setenv("GPUHUNT_CATALOG_URL", tmp_path.as_uri())
    report = import_catalogue("gpuhunt")
    assert report.offers_by_cloud == (("aws", 6), ("gcp", 5), ("lambda", 2))
    assert report.as_of == "2026-11-14"  # of lambdalabs, the oldest
    assert any("Failed to load azure catalog" in each for each in report.complaints)


def test_the_recorded_columns_are_those_of_the_package() -> None:
    storage = pytest.importorskip("gpuhunt._internal.storage", reason="an optional package")
    for file in RECORDED.glob("*.csv"):
        with file.open(newline="") as lines:
            assert next(csv.reader(lines)) == storage.CATALOG_V2_FIELDS


@pytest.mark.parametrize(
    ("versions", "day"),
    [
        (["20261117-1204", "20261116-3"], "2026-11-16"),
        (["20261117"], "2026-11-17"),
        (["20261117", "latest"], None),
        (["20261399"], None),
        ([], None),
    ],
)
def test_a_catalogue_is_as_old_as_its_oldest_part(versions: list[str], day: str | None) -> None:
    assert price_catalogues._oldest(versions) == day
