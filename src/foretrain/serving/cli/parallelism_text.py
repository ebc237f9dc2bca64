"""How a step is parallelised, as text: layout, batch split, exchanges, stages, and how it scales."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretrain.serving.cli.terminal import Column, print_line, print_table
from foretrain.units import format_bytes, format_duration

if TYPE_CHECKING:
    from foretrain.prediction.advice.scaling_curve import ScalingCurve, ScalingPoint
    from foretrain.prediction.answer import ParallelismReport
    from foretrain.prediction.heterogeneous.report import BatchSplit, GroupShare

_BAR = 24
"""Characters of a bar for perfect scaling."""


def show_layout(report: ParallelismReport) -> None:
    """The strategy and the network in a line each."""
    text = f"Strategy: {report.strategy}"
    if report.searched:
        text += f", the fastest of {report.fitting} that fit ({report.searched} tried)"
    print_line(text)
    if report.network:
        print_line("Network: " + ", ".join(f"{name} {where}" for where, name in report.network.items()))


def show_split(split: BatchSplit) -> None:
    """The share of each group of nodes."""
    print_line(f"Split: {split.verdict}", "magenta")
    print_line()
    print_table(
        [
            Column("nodes", least=16), Column("device"), Column("used", right=True),
            Column("batch per device", right=True), Column("samples", right=True),
            Column("step", right=True), Column("computing", right=True, expendable=2),
            Column("memory", right=True, expendable=1), Column("largest batch", right=True, expendable=3),
        ],
        [_share_row(share, split.global_batch) for share in split.shares],
    )  # fmt: skip
    print_line()


def _share_row(share: GroupShare, global_batch: int) -> tuple[str, ...]:
    used = f"{share.nodes_used} of {share.nodes}"
    holds = f"{share.largest_batch}" + ("" if share.largest_batch < global_batch else " or more")
    if share.seconds is None or share.computing_seconds is None or share.memory_bytes is None:
        return share.group, share.device, used, "excluded", "0", "", "", "", holds
    fewest, most = min(share.batches), max(share.batches)
    memory = format_bytes(share.memory_bytes)
    return (
        share.group,
        share.device,
        used,
        f"{most}" if fewest == most else f"{fewest} to {most}",
        f"{share.samples} ({share.samples / global_batch:.0%})",
        format_duration(share.seconds),
        format_duration(share.computing_seconds),
        f"{memory}, fits" if share.fits else f"{memory}: does not fit",
        holds,
    )


def show_parallelism(report: ParallelismReport) -> None:
    """What is exchanged, what each stage holds, and what more or fewer devices would do."""
    print_line(
        f"Communication takes {report.coordination_ratio:.0%} of computing time and moves "
        f"{format_bytes(report.moved_bytes)} per step"
    )
    if report.staleness is not None:
        print_line(f"Gradients are on average {report.staleness:.1f} updates old when they are used")
    if report.exchanges:
        _show_exchanges(report)
    if report.stages:
        _show_stages(report)
    if report.runners_up:
        _show_runners_up(report)
    if report.families:
        _show_families(report)
    if report.scaling is not None:
        _show_scaling(report.scaling)


def _show_exchanges(report: ParallelismReport) -> None:
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
            for each in sorted(report.exchanges, key=lambda each: -each.seconds)
        ],
    )  # fmt: skip


def _show_stages(report: ParallelismReport) -> None:
    print_line()
    for number, name in enumerate(report.stages):
        fullest = " (needs most memory)" if number == report.fullest_stage else ""
        print_line(f"Stage {number + 1}: {name}{fullest}")


def _show_runners_up(report: ParallelismReport) -> None:
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
            for other in report.runners_up
        ],
    )  # fmt: skip


def _show_families(report: ParallelismReport) -> None:
    print_line()
    print_table(
        [Column("best with", least=20), Column("layout", least=24), Column("slower", right=True)],
        [(best.family, best.layout, f"{best.slower:.2f}x") for best in report.families],
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
    if curve.best is None:
        print_line("The step fits on none of these numbers of GPUs")
        return
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
