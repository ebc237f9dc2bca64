"""How a step is spread over devices, as text: layout, exchanges, stages, and how it scales."""

from __future__ import annotations

from foretrain.prediction.advice.scaling_curve import ScalingCurve, ScalingPoint
from foretrain.prediction.answer import ParallelismReport
from foretrain.serving.cli.terminal import Column, print_line, print_table
from foretrain.units import format_bytes, format_duration

_BAR = 24
"""Characters of a bar for perfect scaling."""


def show_layout(spread: ParallelismReport) -> None:
    """The strategy and the network in a line each."""
    said = f"Strategy: {spread.strategy}"
    if spread.searched:
        said += f", the fastest of {spread.fitting} that fit ({spread.searched} tried)"
    print_line(said)
    if spread.network:
        print_line("Network: " + ", ".join(f"{name} {where}" for where, name in spread.network.items()))


def show_spread(spread: ParallelismReport) -> None:
    """What is exchanged, what each stage holds, and what more or fewer devices would do."""
    print_line(
        f"Exchanges take {spread.coordination_ratio:.0%} as long as computing and move "
        f"{format_bytes(spread.moved_bytes)} in a step"
    )
    if spread.staleness is not None:
        print_line(f"Gradients are on average {spread.staleness:.1f} updates old when they are used")
    if spread.exchanges:
        _show_exchanges(spread)
    if spread.stages:
        _show_stages(spread)
    if spread.runners_up:
        _show_runners_up(spread)
    if spread.families:
        _show_families(spread)
    if spread.scaling is not None:
        _show_scaling(spread.scaling)


def _show_exchanges(spread: ParallelismReport) -> None:
    print_line()
    print_table(
        [
            Column("exchange", least=16), Column("among", right=True), Column("times", right=True),
            Column("bytes", right=True), Column("time", right=True), Column("by", expendable=1),
        ],
        [
            (
                each.name,
                str(each.members),
                str(each.count),
                format_bytes(each.bytes),
                format_duration(each.seconds),
                f"{each.algorithm}, {each.tier}",
            )
            for each in sorted(spread.exchanges, key=lambda each: -each.seconds)
        ],
    )  # fmt: skip


def _show_stages(spread: ParallelismReport) -> None:
    print_line()
    for number, name in enumerate(spread.stages):
        fullest = " (needs most memory)" if number == spread.fullest_stage else ""
        print_line(f"Stage {number + 1}: {name}{fullest}")


def _show_runners_up(spread: ParallelismReport) -> None:
    print_line()
    print_table(
        [
            Column("next best", least=24), Column("step", right=True), Column("slower", right=True),
            Column("memory", right=True),
        ],
        [
            (
                other.strategy,
                format_duration(other.step_seconds),
                f"{other.slower:.2f}x",
                format_bytes(other.memory_bytes),
            )
            for other in spread.runners_up
        ],
    )  # fmt: skip


def _show_families(spread: ParallelismReport) -> None:
    print_line()
    print_table(
        [Column("best with", least=20), Column("layout", least=24), Column("slower", right=True)],
        [(best.family, best.layout, f"{best.slower:.2f}x") for best in spread.families],
    )


def _show_scaling(curve: ScalingCurve) -> None:
    print_line()
    print_table(
        [
            Column("GPUs", right=True), Column("batch", right=True, expendable=1), Column("step", right=True),
            Column("samples/s", right=True), Column("efficiency", right=True), Column("", expendable=2),
        ],
        [_scaling_row(point) for point in curve.points],
    )  # fmt: skip
    fixed = "in all" if curve.is_batch_fixed else "for each"
    best = f"Best number of GPUs: {curve.best} (same batch {fixed})"
    print_line(f"{best}; doubling is worth it up to {curve.knee}")


def _scaling_row(point: ScalingPoint) -> tuple[str, ...]:
    bar = "█" * max(1, round(min(1.0, point.efficiency) * _BAR))
    return (
        str(point.devices),
        str(point.global_batch),
        format_duration(point.step_seconds),
        f"{point.samples_per_second:,.1f}" if point.fits else "does not fit",
        f"{point.efficiency:.0%}",
        bar,
    )
