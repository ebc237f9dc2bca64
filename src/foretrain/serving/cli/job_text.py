"""A job as text: time, money and energy, then what the time goes to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretrain.serving.cli.terminal import Column, print_line, print_notes, print_table
from foretrain.units import format_bytes, format_duration, format_money

if TYPE_CHECKING:
    from foretrain.jobs.bill import Price
    from foretrain.jobs.job import Job, JobPart


def show_job(job: Job) -> None:
    """The answer: time, money, energy, and what is least certain about them."""
    seconds, count = job.seconds, job.steps_interval
    doubt = "" if count.p10 == count.p90 else f" (80 % between {count.p10:,.0f} and {count.p90:,.0f})"
    print_line(
        f"Job of {job.steps:,} step{'' if job.steps == 1 else 's'}{doubt}: {format_duration(seconds.p50)} "
        f"(80 % between {format_duration(seconds.p10)} and {format_duration(seconds.p90)})",
        "cyan",
    )
    print_line(f"  cost: {_cost(job)}")
    print_line(f"  energy: {_energy(job)}")
    print_line(f"  {_saving(job)}")
    if job.uncertainty:
        widest = job.uncertainty[0]
        print_line(
            f"  least certain: {widest.source}, which alone moves the time by "
            f"-{format_duration(widest.below_seconds)} to +{format_duration(widest.above_seconds)}"
        )
    print_notes(job.notes, indent="  ")


def show_job_parts(job: Job) -> None:
    """What the time of the job goes to."""
    print_line()
    print_table(
        [
            Column("job"), Column("time", right=True), Column("share", right=True),
            Column("80 % between", right=True, expendable=2), Column("by", least=20, expendable=1),
        ],
        [_row(part, job.seconds.p50) for part in job.parts],
    )  # fmt: skip


def _row(part: JobPart, total: float) -> tuple[str, ...]:
    low, high = part.interval.p10, part.interval.p90
    between = "" if low == high else f"{format_duration(low)} - {format_duration(high)}"
    return part.name, format_duration(part.seconds), f"{part.seconds / total:.1%}", between, part.source


def _cost(job: Job) -> str:
    if job.usd is None or job.price is None:
        return "not known"
    usd = job.usd
    return (
        f"{format_money(usd.p50)} (80 % between {format_money(usd.p10)} and {format_money(usd.p90)}) at "
        + " and ".join(_rate(price) for price in job.price.each)
    )


def _rate(price: Price) -> str:
    machines = f"{price.machines} x " if price.machines > 1 else ""
    return f"{machines}{format_money(price.usd_per_machine_hour)} an hour, {price.source}"


def _energy(job: Job) -> str:
    if job.energy is None:
        return "not known"
    energy = job.energy
    text = f"{energy.kwh.p50:,.3g} kWh (80 % between {energy.kwh.p10:,.3g} and {energy.kwh.p90:,.3g})"
    if energy.co2_kg is not None:
        text += f", {energy.co2_kg.p50:,.3g} kg of CO2 at {energy.grams_per_kwh:,.0f} g/kWh"
    return text


def _saving(job: Job) -> str:
    saving = job.saving
    return (
        f"checkpoints: {saving.times:,.0f} of {format_bytes(saving.bytes)}, one every "
        f"{format_duration(saving.every_seconds)} of work ({saving.every_steps:,} steps); "
        f"{job.interruptions:,.3g} interruptions expected"
    )
