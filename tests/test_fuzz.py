"""The fuzzer: it finds what it is for, repeats itself by its seed, and finds nothing in a small sample."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import NoReturn

import pytest
from scripts import fuzz

from foretrain.serving import cli


def raising(_: object) -> NoReturn:
    raise ZeroDivisionError


def hanging(_: object) -> None:
    while True:
        time.perf_counter()


def unhelpful(_: object) -> NoReturn:
    cli.fail("that was wrong", 2)


@pytest.mark.parametrize(
    ("run", "kind"), [(raising, "traceback"), (hanging, "hang"), (unhelpful, "no hint"), (None, "")]
)
def test_a_command_that_misbehaves_is_found(monkeypatch: pytest.MonkeyPatch, run: object, kind: str) -> None:
    if run is not None:
        monkeypatch.setattr(cli, "main", run)
    outcomes = fuzz.fuzz(range(4), seed=3, limit=0.2 if kind == "hang" else 30, progress=lambda _: None)
    kinds = {finding.kind for each in outcomes for finding in each.findings if each.command != "measure"}
    assert kinds == ({kind} if kind else set())


def test_a_case_depends_on_its_seed_and_number_alone() -> None:
    known = fuzz.commands()
    lines = [fuzz.command_line(random.Random(f"0:{case}"), known) for case in (*range(40), *range(40))]
    assert lines[:40] == lines[40:]
    assert len({tuple(words) for _, words in lines}) > 30


def test_every_command_and_most_options_are_drawn() -> None:
    known = fuzz.commands()
    lines = [fuzz.command_line(random.Random(f"0:{case}"), known) for case in range(3000)]
    assert {name for name, _ in lines} == set(known)
    words = {word for _, line in lines for word in line if word.startswith("--")}
    assert {"--links", "--deadline", "--lora", "--resale-after", "--policy", "--schedule"} <= words
    assert not {"--here", "--measure-here"} & words


def test_a_small_sample_has_no_findings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    outcomes = fuzz.fuzz(range(150), seed=1, limit=30, progress=lambda _: None)
    assert len({each.command for each in outcomes}) > 20
    assert fuzz.report(outcomes, 1, 0.0).endswith("findings: 0")
