"""The first hour of a new user: 60 commands over all families of verbs, mistakes included, end as stated."""

from __future__ import annotations

from benchmarks.first_hour import TypedCommand, TypedResult, run_hour, summary, typed_commands
from benchmarks.timing import discover

from foretrain.serving.cli.app import SUMMARIES

QUICK = ("--help", "devices h100", "predicct", "predict resnet5 ", "--deadline yesterday", "loss=0.7")
"""A few that `make test` runs; `make long` runs all."""


def wrong(results: list[TypedResult]) -> list[str]:
    return [result.row for result in results if not result.is_as_expected]


def test_there_are_sixty_over_all_commands_with_mistakes_among_them() -> None:
    commands = typed_commands()
    assert len(commands) == 60
    typed = {each.line.split()[0] for each in commands}
    assert set(SUMMARIES) - typed == set()
    assert sum(each.exit_code != 0 for each in commands) >= 15


def test_it_is_a_benchmark() -> None:
    (hour,) = [each for each in discover() if each.name == "a first hour of 60 commands"]
    assert hour.runs == 1


def test_a_few_end_as_stated() -> None:
    chosen = [each for each in typed_commands() if any(text in each.line for text in QUICK)]
    assert len(chosen) >= len(QUICK)
    assert wrong(list(run_hour(chosen))) == []


def test_all_end_as_stated() -> None:
    assert wrong(list(run_hour(typed_commands()))) == []


def test_another_exit_code_and_a_traceback_are_noticed() -> None:
    typed = TypedCommand("predict resnet5", 2)
    assert TypedResult(typed, 2, 1.0, "", "error: no model").is_as_expected
    assert not TypedResult(typed, 0, 1.0, "", "").is_as_expected
    assert not TypedResult(typed, 2, 1.0, "", "Traceback (most recent call last)").is_as_expected


def test_the_summary_names_the_total_and_the_slowest() -> None:
    results = [TypedResult(TypedCommand(name, 0), 0, took, "", "") for name, took in (("a", 1.0), ("b", 3.0))]
    assert summary(results) == "2 commands in 4 s; slowest: 3.0 s b, 1.0 s a"
