"""Judge sources of the transfer suite: `python -m validation.transfer --source llm_foundry --worst 10`."""

from __future__ import annotations

import argparse
import csv
import os
import sys
import time
from pathlib import Path

from validation.transfer.judging import (
    SOURCES,
    SPLITS,
    by_set,
    by_trait,
    cases_of,
    figures,
    judge_all,
    table,
    worst,
)

ROOT = Path(__file__).parents[2]


def main() -> None:
    """Judge the chosen sources, or all."""
    parser = argparse.ArgumentParser(prog="python -m validation.transfer", description=__doc__)
    parser.add_argument("--source", action="append", choices=list(SOURCES), help="may be repeated; all")
    parser.add_argument(
        "--sample",
        type=int,
        default=24,
        help="the largest number of cases of a source, evenly over its table; 0: all",
    )
    parser.add_argument("--worst", type=int, default=5, help="how many of the largest errors to list")
    parser.add_argument("--match", default="", help="only cases whose name has this text")
    parser.add_argument("--roofline", action="store_true", help="the roofline's error too: twice the time")
    parser.add_argument("--splits", action="store_true", help="tables by precision, GPU, generation, ...")
    parser.add_argument(
        "--shipped", action="store_true", help="with the shipped calibrations, whatever they are fitted to"
    )
    parser.add_argument("--csv", type=Path, help="write a row for each case")
    parser.add_argument(
        "--data", type=Path, default=Path(os.environ.get("FORETRAIN_DATA", "../shared/datasets"))
    )
    chosen = parser.parse_args()
    os.environ.setdefault("FORETRAIN_HOME", str(ROOT / "build" / "validation"))
    everything, overview = [], []
    for source in chosen.source or SOURCES:
        start = time.perf_counter()
        cases = [
            each for each in cases_of(source, chosen.data, chosen.sample or None) if chosen.match in each.name
        ]
        judged = judge_all(cases, chosen.roofline, not chosen.shipped)
        everything += judged
        answered = [each for each in judged if not each.refusal]
        _say(f"\n## {source}: {len(answered)} of {len(judged)} in {time.perf_counter() - start:.0f} s")
        if answered:
            overview.append((source, figures(answered)))
            _say(table([*((name, figures(group)) for name, group in by_set(judged).items()), overview[-1]]))
            _say("\n".join(worst(answered, chosen.worst)))
        reasons: dict[str, int] = {}
        for each in judged:
            if each.refusal:
                reasons[each.refusal[:160]] = reasons.get(each.refusal[:160], 0) + 1
        for reason, count in reasons.items():
            _say(f"not answered ({count}): {reason}")
    _say("\n" + table(overview, "source"))
    if chosen.splits:
        for trait in SPLITS:
            _say("\n" + table([(name, figures(g)) for name, g in by_trait(everything, trait).items()], trait))
    if chosen.csv:
        _write(chosen.csv, everything)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _write(file: Path, judged: list) -> None:  # type: ignore[type-arg]
    with file.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        traits = list(judged[0].case.traits()) if judged else []
        writer.writerow(
            ["source", "name", *traits, "measured", "p10", "p50", "p90", "napkin", "roofline", "memory",
             "memory_p10", "memory_p50", "memory_p90", "knowledge", "refusal"]
        )  # fmt: skip
        for each in judged:
            seconds, memory = each.seconds, each.memory
            writer.writerow(
                [each.case.source, each.case.name, *each.case.traits().values(), each.case.seconds,
                 *((seconds.p10, seconds.p50, seconds.p90) if seconds else ("", "", "")),
                 each.napkin_seconds, each.roofline_seconds, each.case.memory_bytes,
                 *((memory.p10, memory.p50, memory.p90) if memory else ("", "", "")),
                 each.traits.known if each.traits else '', each.refusal]
            )  # fmt: skip


if __name__ == "__main__":
    main()
