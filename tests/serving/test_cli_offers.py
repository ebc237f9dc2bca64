"""`foretrain offers`."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

Run = Callable[..., CompletedProcess[str]]
HEADER = "cloud,InstanceType,AcceleratorName,AcceleratorCount,Region,vCPUs,MemoryGiB,Price,SpotPrice"
GOOD = "aws,p4d.24xlarge,A100,8.0,us-east-1,96.0,1152.0,20.0,8.0"
A_DATE = re.compile(r"20\d\d(-\d\d(-\d\d)?)?")


@pytest.fixture
def offers(run_here: Run) -> Callable[..., list[dict[str, Any]]]:
    def found(*arguments: str) -> list[dict[str, Any]]:
        listed: list[dict[str, Any]] = json.loads(run_here("offers", *arguments, "--json").stdout)
        return listed

    return found


Offers = Callable[..., list[dict[str, Any]]]


def test_a100_is_offered_by_at_least_six_clouds_every_price_dated(offers: Offers) -> None:
    listed = offers("--gpu", "a100")
    assert len({offer["provider"] for offer in listed}) >= 6
    assert all(A_DATE.fullmatch(offer["as_of"]) for offer in listed)
    assert all(offer["family"] == "a100" and offer["usd_per_hour"] > 0 for offer in listed)


def test_the_example_of_the_help_text(offers: Offers) -> None:
    listed = offers("--gpu", "h100", "--count", "8", "--sort", "price", "--cloud", "aws,gcp", "--spot")
    prices = [offer["spot_usd_per_hour"] for offer in listed]
    assert prices and prices == sorted(prices)
    assert {offer["provider"] for offer in listed} == {"aws", "gcp"}
    assert {offer["count"] for offer in listed} == {8}


def test_one_region_a_machine_unless_all_are_wanted(offers: Offers) -> None:
    cheapest = offers("--cloud", "aws", "--gpu", "a100")
    every = offers("--cloud", "aws", "--gpu", "a100", "--all-regions")
    machines = [offer["instance"] for offer in cheapest]
    assert len(machines) == len(set(machines)) < len(every)
    for offer in cheapest:
        same = [other["usd_per_hour"] for other in every if other["instance"] == offer["instance"]]
        assert offer["usd_per_hour"] == min(same)


def test_limits(offers: Offers) -> None:
    assert len(offers("--limit", "3")) == 3
    assert all(offer["usd_per_hour"] <= 2 for offer in offers("--gpu", "a100", "--max-price", "2usd"))


def test_the_past_is_shown_when_asked_for(offers: Offers) -> None:
    assert all(not offer["historical"] for offer in offers())
    assert {offer["as_of"][:4] for offer in offers("--historical") if offer["historical"]} >= {"2019", "2021"}


def test_every_line_of_the_table_shows_its_date(run_here: Run) -> None:
    header, *lines = run_here("offers", "--gpu", "a100", "--limit", "5").stdout.splitlines()
    assert "region" in header and header.endswith("as of")
    assert all(A_DATE.search(line.split()[-1]) for line in lines[:5])
    assert lines[5].startswith("5 offers of ")


def test_no_matching_offer_is_a_sentence_and_no_error(run_here: Run) -> None:
    run = run_here("offers", "--gpu", "a100", "--max-price", "0.01")
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.startswith("No offer has --max-price 0.01 USD; without --max-price: ")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--gpu", "h1000"), "no GPU 'h1000'; did you mean h100"),
        (("--cloud", "asw"), "no cloud 'asw'; did you mean aws?"),
        (("--region", "us-east-11"), "no region 'us-east-11'; did you mean us-east-1"),
        (("--sort", "prize"), "no order 'prize'; did you mean price"),
        (("--count", "0"), "--count is '0'; it must be a whole number of at least 1"),
        (("--limit", "-3"), "--limit is '-3'; it must be a whole number of at least 1"),
        (("--max-price", "-1"), "--max-price: '-1' is negative"),
        (("--max-price", "0"), "--max-price must be above 0"),
        (("--max-price", "cheap"), "--max-price: 'cheap' is not an amount of money"),
        (("--count", "many"), "--count is 'many'; it must be a whole number"),
        (("--refresh", "missing_2027_01.csv"), "there is no file 'missing_2027_01.csv'"),
        (("--refresh", "prices.csv"), "there is no file 'prices.csv'; give a price CSV"),
    ],
)
def test_bad_requests_get_one_sentence(run_here: Run, arguments: tuple[str, ...], sentence: str) -> None:
    run = run_here("offers", *arguments)
    assert (run.returncode, run.stdout) == (3 if arguments[0] == "--refresh" else 2, "")
    assert run.stderr.startswith("error: ") and sentence in run.stderr
    assert run.stderr.count("\n") == 1


def test_an_imported_price_replaces_the_shipped_one(run_here: Run, offers: Offers, tmp_path: Path) -> None:
    file = tmp_path / "prices_2027_01_15.csv"
    file.write_text(f"{HEADER}\n{GOOD}\n")
    report = json.loads(run_here("offers", "--refresh", str(file), "--json").stdout)
    assert (report["rows"], report["offers_by_cloud"], report["as_of"]) == (1, [["aws", 1]], "2027-01-15")
    (offer,) = offers("--cloud", "aws")
    assert (offer["usd_per_hour"], offer["as_of"], offer["source"]) == (20.0, "2027-01-15", "user-import")


def test_the_report_of_an_import_in_words(run_here: Run, tmp_path: Path) -> None:
    file = tmp_path / "prices.csv"
    file.write_text(f"{HEADER}\n{GOOD}\naws,x1,Abacus,1,us-east-1,4,16,1.0,\n")
    text = run_here("offers", "--refresh", str(file), "--as-of", "2027-02-01").stdout
    assert text.startswith("Imported 1 offers of 2027-02-01 from 2 rows of prices.csv\n")
    assert "Skipped 1 rows of aws 'Abacus'" in text


@pytest.mark.parametrize(
    ("rows", "number", "problem"),
    [
        ([GOOD, GOOD.replace("20.0", "-20.0")], 3, "-20"),
        ([GOOD, GOOD, GOOD.replace("20.0", "dear")], 4, "dear"),
        ([GOOD, "aws,p4d.24xlarge"], 3, ""),
    ],
)
def test_a_malformed_price_file_names_the_row_and_imports_nothing(
    run_command: Run, tmp_path: Path, own_home: Path, rows: list[str], number: int, problem: str
) -> None:
    file = tmp_path / "prices_2027_01_15.csv"
    file.write_text("\n".join((HEADER, *rows)) + "\n")
    run = run_command("offers", "--refresh", str(file))
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr.startswith(f"error: prices_2027_01_15.csv, row {number}: ")
    assert problem in run.stderr and "Traceback" not in run.stderr
    assert run.stderr.count("\n") == 1
    assert [file.name for file in own_home.iterdir()] == ["graphs"], "nothing was imported"
