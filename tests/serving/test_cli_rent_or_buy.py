"""`foretrain rent-or-buy`."""

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from foretrain.facts.offers import offer_named
from foretrain.measuring.this_machine import measure_this_machine

Run = Callable[..., CompletedProcess[str]]
Answer = Callable[..., dict[str, Any]]


@pytest.fixture
def answer(run_here: Run) -> Answer:
    def ask(*arguments: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(run_here("rent-or-buy", *arguments, "--json").stdout)
        return found

    return ask


def test_the_real_command_answers_the_published_question(run_command: Run) -> None:
    run = run_command("rent-or-buy", "--price", "8000", "--rent", "1.5", "--json")
    assert (run.returncode, run.stderr) == (0, "")
    found = json.loads(run.stdout)
    assert found["break_even_hours"] == pytest.approx(5333.33, abs=0.01)
    assert found["break_even_years"] == pytest.approx(5333.33 / 2000, abs=0.001)


def test_a_rented_machine_that_does_30_percent_less(answer: Answer) -> None:
    found = answer("--price", "8000", "--rent", "1.5", "--relative-performance", "0.7")
    assert found["break_even_hours"] == pytest.approx(3733.33, abs=0.01)
    assert found["rented_hours_for_the_same_work"] == pytest.approx(5333.33, abs=0.01)


@pytest.mark.parametrize("price", ["8000", "$8,000", "8k", "8000usd", "8k$"])
def test_money_as_people_write_it(answer: Answer, price: str) -> None:
    assert answer("--price", price, "--rent", "1.50")["request"]["price_usd"] == 8000


def test_the_rent_of_a_cloud_offer(answer: Answer) -> None:
    found = answer("--price", "200k", "--offer", "aws:p4d.24xlarge")
    assert found["request"]["rent_usd_per_hour"] == offer_named("aws:p4d.24xlarge").usd_per_hour


def test_power_from_the_tdp_of_devices(answer: Answer) -> None:
    found = answer(
        "--price", "8000", "--rent", "1.5", "--device", "t4:4", "--usd-per-kwh", "0.5", "--pue", "1.5"
    )
    assert found["request"]["watts"] == 4 * 70
    assert found["electricity_usd_per_hour"] == pytest.approx(0.280 * 1.5 * 0.5)
    assert found["break_even_hours"] == pytest.approx(8000 / (1.5 - 0.21))


def test_resale_after_a_duration(answer: Answer) -> None:
    found = answer("--price", "8000", "--rent", "1.5", "--resale", "2000", "--resale-after", "3y")
    assert found["request"]["resale_after_years"] == 3
    assert found["net_price_usd"] == 6000


def test_utilisation_is_a_share_of_the_year(answer: Answer) -> None:
    found = answer("--price", "8000", "--rent", "1.5", "--utilisation", "0.5")
    assert found["request"]["hours_per_year"] == 4380
    assert found["break_even_years"] == pytest.approx(5333.33 / 4380, abs=1e-3)


def test_never_is_an_answer(run_here: Run, answer: Answer) -> None:
    dear_power = ("--price", "8000", "--rent", "0.1", "--watts", "2000", "--usd-per-kwh", "1")
    assert answer(*dear_power)["break_even_hours"] is None
    assert run_here("rent-or-buy", *dear_power).stdout.startswith("Break-even: never")


def test_the_answer_in_words(run_here: Run) -> None:
    lines = run_here("rent-or-buy", "--price", "8000", "--rent", "1.5").stdout.splitlines()
    assert lines[0] == "Break-even: 5,333 h of use, 2.67 years"
    (half,) = [line for line in lines if line.split()[:1] == ["50%"]]
    assert half.split() == ["50%", "4,380", "5,333", "h", "1.22"]


def test_a_plot_is_drawn_on_request(run_here: Run, tmp_path: Path) -> None:
    chart = tmp_path / "costs.svg"
    run = run_here("rent-or-buy", "--price", "8000", "--rent", "1.5", "--plot", str(chart))
    assert run.stdout.endswith(f"Plot: {chart}\n")
    assert chart.read_text().startswith("<svg")


ASKED = ("--price", "8000", "--rent", "1.5")


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (("--price", "8000", "--rent", "-1"), 2, "--rent: '-1' is negative"),
        (("--price", "8000", "--rent=-1"), 2, "--rent: '-1' is negative"),
        (("--price", "-8000", "--rent", "1"), 2, "--price: '-8000' is negative"),
        (("--price", "0", "--rent", "1"), 2, "price_usd must be above 0"),
        (("--price", "8000"), 2, "either --rent (USD per hour) or --offer"),
        ((*ASKED, "--offer", "aws:p4d.24xlarge"), 2, "either --rent (USD per hour) or --offer"),
        (("--price", "8000", "--offer", "p4d.24xlarge"), 2, "is not provider:instance"),
        (("--price", "8000", "--offer", "awss:p4d.24xlarge"), 2, "no cloud 'awss'; did you mean aws?"),
        (("--rent", "1.5"), 2, "--price is required: Purchase price of the machine"),
        ((*ASKED, "--resale-after", "soon"), 2, "--resale-after: 'soon' is not a duration such as"),
        ((*ASKED, "--resale", "1000"), 2, "--resale requires --resale-after, the years"),
        ((*ASKED, "--resale", "9000", "--resale-after", "3y"), 2, "is above the price"),
        ((*ASKED, "--device", "a100"), 2, "'a100' is a family of devices; name one of its variants: a100-"),
        ((*ASKED, "--device", "t44"), 2, "no device 't44'; did you mean t4"),
        ((*ASKED, "--device", "t4:none"), 2, "is not DEVICE or DEVICE:COUNT"),
        ((*ASKED, "--device", "t4", "--watts", "70"), 2, "not both"),
        ((*ASKED, "--utilisation", "1.5"), 2, "--utilisation must be above 0 and at most 1"),
        ((*ASKED, "--utilisation", "0.5", "--hours-per-year", "100"), 2, "not both"),
        ((*ASKED, "--hours-per-year", "9000"), 2, "a year has 8760 h"),
        ((*ASKED, "--pue", "0.9"), 2, "at least 1"),
        ((*ASKED, "--discount-rate", "nan"), 2, "--discount-rate is 'nan'; it must be a number"),
        ((*ASKED, "--plot", "costs.gif"), 2, "end the name in .png, .svg, .pdf"),
        ((*ASKED, "--plot", "no/such/folder/costs.png"), 2, "there is no folder"),
    ],
)  # fmt: skip
def test_bad_requests_get_one_sentence(
    run_here: Run, arguments: tuple[str, ...], code: int, sentence: str
) -> None:
    run = run_here("rent-or-buy", *arguments)
    assert (run.returncode, run.stdout) == (code, "")
    assert run.stderr.startswith("error: ") and sentence in run.stderr
    assert run.stderr.count("\n") == 1


@pytest.mark.usefixtures("quick_measurement")
def test_a_device_of_unknown_power_is_missing_data(run_here: Run) -> None:
    measure_this_machine()  # a sheet without a TDP
    run = run_here("rent-or-buy", *ASKED, "--device", "here")
    assert (run.returncode, run.stdout) == (3, "")
    assert run.stderr.startswith("error: no tdp_watts is known of here")
