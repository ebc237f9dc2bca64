"""`foretrain plan`: which machines to rent for a job, among all offers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from foretrain.decoding import FILE, SWITCH, TEXT, option
from foretrain.serving import plan_words as words
from foretrain.serving.cli.frame import Command, Output, check_file, command_line, write_file
from foretrain.serving.cli.job_text import show_job, show_job_parts
from foretrain.serving.cli.terminal import (
    Column,
    Points,
    as_far_as_it_is_read,
    print_infeasible,
    print_json,
    print_line,
    print_notes,
    print_points,
    print_table,
    spinner,
)
from foretrain.serving.requests import OUTPUT, PlanRequest
from foretrain.serving.wording import as_flags, probability
from foretrain.units import DAY, HOUR, MINUTE, format_bytes, format_duration, format_money

if TYPE_CHECKING:
    from foretrain.jobs.configurations import RunConfiguration
    from foretrain.planning.frontier import Frontier, Plan

_MARK = "✓"
_MOST_EXCLUSIONS = 6
_ALL = "all"
_MACHINE = 22
_LEAST_RISK = 0.005
_TIMES = ((DAY, "days"), (HOUR, "hours"), (MINUTE, "minutes"), (1.0, "seconds"))


@dataclass(frozen=True, kw_only=True)
class PlanOutput(Output):
    """What `plan` prints and writes."""

    why: str | None = option(
        TEXT, "Why machines of this name or GPU lost; `all` for every one.", panel=OUTPUT, metavar="NAME"
    )
    emit: str | None = option(
        TEXT, "Write a launch file: torchrun, slurm, skypilot or ray.", panel=OUTPUT, metavar="LAUNCHER"
    )
    emit_to: Path | None = option(FILE, "File to write it to, instead of its own name here.", panel=OUTPUT)
    script: str | None = option(
        TEXT, "Command that the launch file starts (default: train.py).", panel=OUTPUT, metavar="COMMAND"
    )
    html: Path | None = option(FILE, "Write the report as one self-contained page.", panel=OUTPUT)
    check: bool = option(
        SWITCH, "Exit with 1 if no plan keeps the limits or nothing fits.", default=False, panel=OUTPUT,
        flags=("--check", "--ci"),
    )  # fmt: skip


def run(request: PlanRequest, output: PlanOutput) -> int:
    """Plan, write the files asked for, and print."""
    from foretrain.answers import Infeasible
    from foretrain.errors import EXIT_INFEASIBLE
    from foretrain.serving import verbs

    _check_files(output)
    with spinner(f"Planning {request.model}") as progress:
        answer = verbs.plan(request, progress, with_prediction=output.html is not None)
    if isinstance(answer, Infeasible):
        print_infeasible(answer, output.json)
        return EXIT_INFEASIBLE if output.check else 0
    written = _write_files(answer, output)
    with as_far_as_it_is_read():
        _print(answer, output, written)
    return EXIT_INFEASIBLE if output.check and not answer.meets_limits else 0


def _print(answer: Frontier, output: PlanOutput, written: list[str]) -> None:
    if output.json:
        print_json(answer.to_dict())
        return
    show(answer, output.why)
    for line in written:
        print_line(line, "green")


def _check_files(output: PlanOutput) -> None:
    """Refuse files that cannot be written before anything is planned."""
    from foretrain.errors import InvalidRequest

    if output.emit is not None:
        from foretrain.planning.launch_files.catalogue import launch_targets

        launch_targets()[output.emit]
    elif output.emit_to is not None:
        raise InvalidRequest("--emit-to is the file of --emit: give that too")
    elif output.script is not None:
        raise InvalidRequest("--script is the command of a launch file: give --emit LAUNCHER too")
    check_file("--html", output.html)
    check_file("--emit-to", output.emit_to)


def _write_files(answer: Frontier, output: PlanOutput) -> list[str]:
    """Write the files asked for; a line about each."""
    lines = []
    if output.html is not None:
        from datetime import date

        from foretrain.serving.html.plan_report import plan_report

        write_file("--html", output.html, plan_report(answer, command_line(), date.today().isoformat()))
        lines.append(f"Report: {output.html}")
    if output.emit is not None:
        lines.append(_write_launch_file(answer, output, output.emit))
    return lines


def _write_launch_file(answer: Frontier, output: PlanOutput, launcher: str) -> str:
    """The launch file of the plan shown; an existing file is replaced only if it was named."""
    import shlex

    from foretrain.errors import InvalidRequest
    from foretrain.planning.launch_files.catalogue import launch_file, launch_plan, launch_targets

    launched = launch_file(launcher, launch_plan(answer, output.script or "train.py"))
    file = output.emit_to or Path(launched.file_name)
    if output.emit_to is None and file.exists():
        raise InvalidRequest(f"{file} exists already: move it away, or name a file with --emit-to")
    write_file("--emit-to", file, launched.named(file.name).text)
    late = "" if answer.meets_limits else " of that plan, which does not keep the limits"
    start = launch_targets()[launcher].how_to_start.format(file=shlex.quote(str(file)))
    return f"Launch file{late}: {file}; start it with: {start}"


COMMAND = Command(
    PlanRequest,
    PlanOutput,
    run,
    "Compares every offer, one machine and several together, with every strategy and batch size that fits. "
    "Shows the Pareto front of time and money, which plans keep deadline and budget, and how probably.",
    (
        "foretrain plan resnet50 --samples 1281167 --epochs 90 --precision fp16 --deadline 24h",
        "foretrain plan bert-large --steps 7038 --global-batch 256 --precision fp16 --budget 200usd --spot",
        "foretrain plan llama3-8b --steps 2000 --global-batch 64 --precision bf16 --gpu h100 --max-gpus 16",
        "foretrain plan resnet50 --samples 1281167 --epochs 90 --deadline 6h --html plan.html --emit ray",
    ),
)


def show(frontier: Frontier, why: str | None = None) -> None:
    """The answer, the front, the chosen job, two phases, exclusions."""
    _answer(frontier)
    print_line()
    _front(frontier)
    _draw(frontier)
    _two_phases(frontier)
    print_line()
    show_job(frontier.job)
    show_job_parts(frontier.job)
    if frontier.job_stream is not None:
        print_line()
        print_line(f"Rent or buy: {frontier.job_stream.verdict}", "cyan")
        print_notes(frontier.job_stream.notes, indent="  ")
    if why is not None:
        _losers(frontier, why)
    _rest(frontier)


def _answer(frontier: Frontier) -> None:
    plan = frontier.plans[frontier.reported]
    where = f" in {plan.offer.place}" if plan.offer.place else ""
    text = (
        f"{words.machines(plan)}{where} ({words.gpus(plan)}): {format_duration(plan.seconds.p50)} for "
        f"{format_money(plan.usd.p50)}"
    )
    if frontier.meets_limits:
        print_line(f"{_MARK} {frontier.model}: rent {text}", "bold green")
    else:
        print_line(f"{frontier.model}: no plan keeps the limits; nearest is {text}", "bold red")
    limits = words.limits(frontier, plan)
    if limits:
        print_line(f"  {limits}")
    print_line(f"  {_configuration(plan)}")


def _configuration(plan: Plan) -> str:
    from foretrain.jobs.device_memory import capacity_bytes

    how = plan.configuration
    strategy = f"{how.strategy}, " if plan.devices > 1 else ""
    stored = "" if how.weights == how.precision else f" (weights {how.weights})"
    text = f"{strategy}{how.precision}{stored}, batch {how.batch:,} per GPU"
    if how.micro_batches > 1:
        text += f" in {how.micro_batches} micro-batches"
    if how.checkpoint_activations:
        text += ", activations recomputed"
    memory = f"{format_bytes(how.memory_bytes)} of {format_bytes(capacity_bytes(plan.hardware.device))}"
    memory += f" per GPU{_risk(how)}"
    step = format_duration(how.step_seconds.p50)
    known = how.knowledge_class.sentence
    return f"{text}, global batch {how.global_batch:,}; {step} per step; {memory}; {known}"


def _risk(how: RunConfiguration) -> str:
    """The chance of running out of memory, where there is one to speak of."""
    chance = how.out_of_memory_probability
    return f" ({probability(chance)} chance of running out)" if chance >= _LEAST_RISK else ""


def _front(frontier: Frontier) -> None:
    limited = frontier.deadline_seconds is not None or frontier.budget_usd is not None
    columns = [
        Column(""),
        Column("machines", least=_MACHINE),
        Column("GPUs", right=True),
        Column("GPU"),
        Column("strategy", expendable=5),
        Column("batch", right=True, expendable=4),
        Column("time", right=True, style="cyan"),
        Column("80 % between", right=True, expendable=3),
        Column("cost", right=True, style="green"),
        Column("kWh", right=True, expendable=6),
        Column("kg CO2", right=True, expendable=7),
        Column("chance", right=True, expendable=1),
    ]
    rows = [_row(frontier, index) for index in frontier.front]
    if not limited:
        columns, rows = columns[:-1], [row[:-1] for row in rows]
    title = f"Nothing is both faster and cheaper than these ({len(frontier.plans):,} machines compared):"
    print_table(columns, rows, title)
    within = _within(frontier)
    named = {f"cheapest{within}": frontier.cheapest, f"fastest{within}": frontier.fastest}
    for name, index in (named | {"best of both (knee)": frontier.knee}).items():
        if index is not None:
            plan = frontier.plans[index]
            cost, time = format_money(plan.usd.p50), format_duration(plan.seconds.p50)
            print_line(f"  {name}: {words.machines(plan)}, {time}, {cost}", "dim")


def _within(frontier: Frontier) -> str:
    """The limits that the cheapest and the fastest keep, both of them."""
    limits = {"deadline": frontier.deadline_seconds, "budget": frontier.budget_usd}
    kept = [name for name, limit in limits.items() if limit is not None]
    return f" within {' and '.join(kept)}" if kept else ""


def _row(frontier: Frontier, index: int) -> tuple[str, ...]:
    plan = frontier.plans[index]
    configuration = plan.configuration
    return (
        _MARK if index == frontier.chosen else "",
        words.machines(plan),
        f"{plan.devices:,}",
        plan.hardware.device.id,
        configuration.strategy if plan.devices > 1 else "",
        f"{configuration.global_batch:,}",
        format_duration(plan.seconds.p50),
        words.between_times(plan.seconds),
        format_money(plan.usd.p50),
        "" if plan.kwh is None else f"{plan.kwh:,.3g}",
        "" if plan.co2_kg is None else f"{plan.co2_kg:,.3g}",
        probability(plan.both),
    )


def _draw(frontier: Frontier) -> None:
    """Time against money: the front among all."""
    longest = max(frontier.plans[index].seconds.p50 for index in frontier.front)
    scale, unit = next((each for each in _TIMES if longest >= 2 * each[0]), _TIMES[-1])
    on_front = set(frontier.front)
    dearest = 4 * max(frontier.plans[index].usd.p50 for index in frontier.front)
    others = [
        plan
        for index, plan in enumerate(frontier.plans)
        if index not in on_front and plan.seconds.p50 <= 4 * longest and plan.usd.p50 <= dearest
    ]
    chosen = [] if frontier.chosen is None else [frontier.plans[frontier.chosen]]
    print_points(
        "Time against money",
        f"time, {unit}",
        "cost, USD",
        [
            Points("others", *_places(others, scale), "dot"),
            Points("front", *_places(list(frontier.on_front()), scale), "hd", is_line=True),
            Points("chosen", *_places(chosen, scale), _MARK),
        ],
    )


def _places(plans: Sequence[Plan], scale: float) -> tuple[list[float], list[float]]:
    return [plan.seconds.p50 / scale for plan in plans], [plan.usd.p50 for plan in plans]


def _two_phases(frontier: Frontier) -> None:
    two = frontier.two_phases
    if two is None:
        return
    saved = f"saves {format_money(two.saved_usd)}"
    if frontier.deadline_seconds is None:  # then it was the fastest within the budget that was looked for
        saved = f"is {format_duration(two.saved_seconds)} faster"
    flat = two.flattens_at_share
    curve = "" if flat is None else f" (the curve flattens at {flat:.0%})"
    print_line()
    print_line(
        f"In two phases: the first {two.switch_share:.0%}{curve} on {words.machines(two.first)}, the "
        f"rest on {words.machines(two.second)}: {format_duration(two.plan.seconds)} for "
        f"{format_money(two.plan.usd)}. That {saved} against one machine, at the expected times: it leaves "
        "no slack to the limit.",
        "cyan",
    )
    print_notes([two.note] if two.note else [], indent="  ")


def _losers(frontier: Frontier, why: str) -> None:
    lost = list(_matching(frontier, why))
    print_line()
    if not lost:
        print_line(f"No plan that lost matches {why!r}; --why all lists them.", "yellow")
        return
    print_table(
        [
            Column("machines", least=_MACHINE), Column("time", right=True), Column("cost", right=True),
            Column("why it lost", least=30),
        ],
        [
            (
                words.machines(frontier.plans[index]),
                format_duration(frontier.plans[index].seconds.p50),
                format_money(frontier.plans[index].usd.p50),
                words.why_lost(frontier, frontier.reasons[index]),
            )
            for index in lost
        ],
        "Why the others lost:",
    )  # fmt: skip


def _matching(frontier: Frontier, why: str) -> Iterator[int]:
    from foretrain.planning.selection import Verdict

    wanted = why.casefold()
    for index, (plan, reason) in enumerate(zip(frontier.plans, frontier.reasons, strict=True)):
        names = f"{words.machines(plan)} {plan.hardware.device.id}".casefold()
        if reason.verdict is not Verdict.ON_FRONT and (wanted == _ALL or wanted in names):
            yield index


def _rest(frontier: Frontier) -> None:
    print_line()
    print_line(
        f"{frontier.considered:,} combinations of machines, strategy and batch size were compared.", "dim"
    )
    for each in frontier.excluded[:_MOST_EXCLUSIONS]:
        more = ", ..." if each.count > len(each.examples) else ""
        print_line(
            f"Excluded: {each.machine_types} ({', '.join(each.examples)}{more}): {as_flags(each.reason)}",
            "dim",
        )
    print_notes([note for note in frontier.notes if note not in frontier.job.notes])
