"""The best plan for a job: every offer, as one node or several, in its best configuration, by time and cost.

    enumerate   every offer x number of machines                              planning.machines
    evaluate    x strategy x batch size -> time and cost of the whole job     planning.table
    select      the front, the choice within the limits                       planning.selection
    verify      predict the selected plans in full; select again on change    planning.table

On given machines cost grows with time, so each keeps only its fastest configuration, and no plan is lost.
Where nothing fits at a given global batch, other layouts are searched (`table.search_layouts`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from foretrain.answers import Infeasible
from foretrain.errors import InvalidRequest, MissingData
from foretrain.jobs.batch_limits import largest_batch, tokens_per_sample
from foretrain.jobs.configurations import (
    ConfigurationSpace,
    configuration_space,
    may_search_layouts,
)
from foretrain.jobs.interruptions import interruptions
from foretrain.jobs.job import Job
from foretrain.jobs.length import KnownLength, Length, length_of
from foretrain.jobs.options import BatchLimits, JobOptions, LengthOptions
from foretrain.planning.frontier import SEVERAL, Frontier, Plan, TwoPhases
from foretrain.planning.machines import (
    Excluded,
    Machines,
    MachinesRequest,
    contradicting_filters,
    enumerate_machines,
    exclusions,
)
from foretrain.planning.options import Limits, OwningOptions
from foretrain.planning.selection import Selection, numbers, reasons, select
from foretrain.planning.table import (
    ChoicesByShape,
    JobConditions,
    PlanTable,
    evaluate,
    plan_table,
    search_layouts,
    verify,
)
from foretrain.prediction.corrections.apply import resolve_cost_model
from foretrain.prediction.cost_models import CostModel
from foretrain.prediction.operators.pricing import DEFAULT
from foretrain.prediction.options import InputOptions
from foretrain.prediction.strategies.strategy import plan_words
from foretrain.units import format_bytes
from foretrain.workloads.workload import Workload

if TYPE_CHECKING:
    from foretrain.planning.rent_or_buy import JobStream
    from foretrain.prediction.answer import Prediction

Progress = Callable[[str], None]


@dataclass(frozen=True)
class PlanProblem:
    """A job, the machines it may run on, and its limits.

    `strategies` are those to compare; `layouts` also searches tensor, pipeline and other layouts for plans on
    the front whose state must be sharded. `with_prediction` adds the full prediction of the reported plan's
    step. Both take seconds.
    """

    workload: Workload
    length: LengthOptions
    options: JobOptions = field(default_factory=JobOptions)
    machines: MachinesRequest = field(default_factory=MachinesRequest)
    batches: BatchLimits = field(default_factory=BatchLimits)
    strategies: tuple[str, ...] = field(default_factory=plan_words)
    limits: Limits = field(default_factory=Limits)
    input: InputOptions = field(default_factory=InputOptions)
    cost_model: CostModel | str = DEFAULT
    owning: OwningOptions = field(default_factory=OwningOptions)
    layouts: bool = False
    with_prediction: bool = False

    @property
    def may_search_layouts(self) -> bool:
        """Whether a model too large for data parallelism may use other layouts."""
        return may_search_layouts(self.batches, self.strategies)

    def __post_init__(self) -> None:
        unknown = [name for name in self.strategies if name not in plan_words()]
        if unknown:
            known = ", ".join(plan_words())
            raise InvalidRequest(f"plan compares the strategies {known}, not {unknown[0]!r}")
        if not self.length.is_known:
            raise InvalidRequest(
                "the length of the job is missing: give `steps`, `tokens`, `epochs` with `samples`, or "
                "`target` with `log`"
            )
        if self.options.usd_per_hour is not None:
            raise InvalidRequest("plan uses the prices of the offers; `usd_per_hour` is for predict")
        if self.options.region is not None:
            raise InvalidRequest("plan runs jobs where the offers are: filter the machines by region")
        _check(self.options)


def _check(options: JobOptions) -> None:
    """Refuse options that are invalid on every machine."""
    interruptions(1, 1, options.spot, options.interruptions_per_day)
    every = options.checkpoint_every
    if every is not None and not every > 0:
        raise InvalidRequest(f"checkpoints must be more than 0 s of work apart, got {every:g} s")


@dataclass(frozen=True)
class _Verified:
    """A plan table whose selected rows are verified; no selection and no plans where no row is left."""

    table: PlanTable
    selection: Selection | None = None
    plans: tuple[Plan, ...] = ()
    two_phases: TwoPhases | None = None


def plan(request: PlanProblem, progress: Progress = lambda _: None) -> Frontier | Infeasible:
    """Every machine that could run the job, the Pareto front among them, and which to take."""
    progress("reading the offers")
    machines, unplanned = enumerate_machines(replace(request.machines, spot=request.options.spot))
    length = _length(request)
    if not machines:
        return _nothing_to_rent(request, unplanned)
    progress("recording the step")
    space = _space(request, machines, length)
    conditions = JobConditions(request.options, request.length.samples)
    chosen = ChoicesByShape(space, machines)
    table = evaluate(chosen, machines, conditions, progress)
    verified = _select_and_verify(request, chosen, table, conditions, progress)
    chosen.keep()
    if verified.selection is None and request.may_search_layouts:
        assert request.batches.global_batch is not None, "layouts are searched at one global batch"
        layouts = search_layouts(
            space, machines, request.batches.global_batch, request.options.spot, progress
        )
        table = plan_table(machines, layouts, conditions)
        table = replace(table, considered=verified.table.considered)
        shortfalls = verified.table.excluded
        verified = _select_and_verify(request, chosen, table, conditions, progress)
        if verified.selection is None:
            return _nothing_fits(request, shortfalls, (*unplanned, *verified.table.excluded))
    excluded = (*unplanned, *verified.table.excluded)
    if verified.selection is None:
        return _nothing_fits(request, verified.table.excluded, excluded)
    return _frontier(request, verified, verified.selection, length, excluded)


def _length(request: PlanProblem) -> Length:
    """The length of the job; steps, as given or of a log, must be of some batch."""
    length = length_of(request.length, request.workload)
    assert length is not None, "the request checked it"
    batches = request.batches
    is_of_any_batch = (
        isinstance(length, KnownLength) and length.epoch_samples is None and length.reference_batch is None
    )
    if is_of_any_batch and batches.batch is None and batches.global_batch is None:
        raise InvalidRequest(
            "`steps` requires `global_batch`, or `reference_batch` to compare other batch sizes"
        )
    return length


def _space(request: PlanProblem, machines: Iterable[Machines], length: Length) -> ConfigurationSpace:
    workload = request.workload
    shapes = {each.shape: each.hardware for each in machines}
    return configuration_space(
        workload,
        shapes.values(),
        length,
        request.batches.up_to(largest_batch(workload, request.length.samples)),
        request.strategies,
        resolve_cost_model(request.cost_model, workload),
        request.input,
        request.layouts,
    )


def _select_and_verify(
    request: PlanProblem,
    chosen: ChoicesByShape,
    table: PlanTable,
    conditions: JobConditions,
    progress: Progress,
) -> _Verified:
    """Select, verify what is selected, and select again until all of it is verified."""
    while table.rows:
        rows = table.rows
        configurations = [row.chosen.configuration for row in rows]
        selection = select(
            numbers(
                [row.time.seconds for row in rows],
                [row.usd for row in rows],
                [each.reliability for each in configurations],
                [each.within_prediction for each in configurations],
                [each.is_safe for each in configurations],
            ),
            request.limits,
        )
        progress("verifying the front")
        verified = verify(table, selection.named, conditions, chosen)
        if verified is table:
            plans = _plans(table, selection)
            two_phases = _two_phases(request, chosen.space, table, plans)
            verified = verify(table, _phases(plans, two_phases), conditions, chosen)
            if verified is table:
                return _Verified(table, selection, plans, two_phases)
        table = verified
    return _Verified(table)


def _plans(table: PlanTable, selection: Selection) -> tuple[Plan, ...]:
    probabilities = (selection.in_time.tolist(), selection.in_budget.tolist(), selection.both.tolist())
    return tuple(row.plan(*three) for row, *three in zip(table.rows, *probabilities, strict=True))


def _phases(plans: Iterable[Plan], two: TwoPhases | None) -> set[int]:
    """The indices of the plans of two phases."""
    if two is None:
        return set()
    return {index for index, each in enumerate(plans) if each is two.first or each is two.second}


def _two_phases(
    request: PlanProblem, space: ConfigurationSpace, table: PlanTable, plans: tuple[Plan, ...]
) -> TwoPhases | None:
    if not request.limits.any:
        return None
    from foretrain.planning.migration import two_phases

    terms = [row.price.terms for row in table.rows]
    flattens_at = space.length.flattens_at_share
    state_bytes = plans[0].configuration.state_bytes
    return two_phases(plans, terms, request.limits, request.options, state_bytes, flattens_at)


def _frontier(
    request: PlanProblem,
    verified: _Verified,
    selection: Selection,
    length: Length,
    excluded: Iterable[Excluded],
) -> Frontier:
    limits, plans = request.limits, verified.plans
    order = sorted(range(len(plans)), key=lambda index: (plans[index].usd.p50, plans[index].seconds.p50))
    place = {old: new for new, old in enumerate(order)}
    ordered = tuple(plans[index] for index in order)
    reported, job = plans[selection.reported], verified.table.rows[selection.reported].job
    stream, stream_notes = _stream(request, reported, job)
    return Frontier(
        model=request.workload.source.name,
        workload=request.workload,
        deadline_seconds=limits.deadline,
        budget_usd=limits.budget,
        plans=ordered,
        reasons=reasons(
            [each.seconds.p50 for each in ordered],
            [each.usd.p50 for each in ordered],
            limits.most_seconds,
            limits.most_usd,
        ),
        front=tuple(place[index] for index in selection.front),
        cheapest=None if selection.cheapest is None else place[selection.cheapest],
        fastest=None if selection.fastest is None else place[selection.fastest],
        knee=place[selection.knee],
        chosen=None if selection.chosen is None else place[selection.chosen],
        reported=place[selection.reported],
        next_best=tuple(place[index] for index in selection.next_best),
        tokens_per_sample=tokens_per_sample(request.workload),
        job=job,
        prediction=_predicted(request, reported) if request.with_prediction else None,
        two_phases=verified.two_phases,
        job_stream=stream,
        excluded=exclusions(excluded),
        considered=verified.table.considered,
        notes=(*_notes(request, length, job), *stream_notes),
    )


def _predicted(request: PlanProblem, reported: Plan) -> Prediction:
    """The full prediction of the reported plan's step."""
    from foretrain.facts.hardware import Cluster
    from foretrain.prediction.options import Parallelism
    from foretrain.prediction.predict import predict
    from foretrain.prediction.scenario import Scenario

    configuration, options = reported.configuration, request.workload.options
    workload = replace(
        request.workload,
        sizes=replace(request.workload.sizes, batch=configuration.batch),
        options=replace(options, checkpoint_activations=configuration.checkpoint_activations),
    )
    parallelism = Parallelism(
        strategy=configuration.strategy,
        micro_batches=configuration.micro_batches if configuration.micro_batches > 1 else None,
        links=reported.hardware.links,
        network=reported.hardware.network,
    )
    cluster = Cluster(reported.hardware.name, (reported.hardware,))
    answer = predict(Scenario(workload, cluster, parallelism, request.cost_model, request.input))
    assert not isinstance(answer, Infeasible), "the plan was verified"
    return answer


def _stream(request: PlanProblem, reported: Plan, job: Job) -> tuple[JobStream | None, tuple[str, ...]]:
    """Renting against buying, if requested; missing data is a note, not an error."""
    owning = request.owning
    if owning.jobs_per_year is None:
        return None, ()
    from foretrain.planning.rent_or_buy import rent_or_buy_for_jobs

    try:
        return rent_or_buy_for_jobs(owning, reported.hardware, job.seconds, reported.usd_per_hour), ()
    except MissingData as error:
        return None, (f"renting is not compared with buying: {error} (`buy_price`)",)


def _notes(request: PlanProblem, length: Length, job: Job) -> tuple[str, ...]:
    notes = list(job.notes)
    if request.batches.global_batch is None:
        notes += length.notes_where_batch_is_chosen
    if request.batches.is_open:
        most = largest_batch(request.workload, request.length.samples)
        notes.append(f"global batches up to {most:,} are compared; `max_global_batch` changes that")
    if request.input.dataset is None:
        notes.append("samples are assumed to be in memory; `dataset` adds the time to read them")
    return tuple(dict.fromkeys(notes))


def _nothing_to_rent(request: PlanProblem, excluded: Iterable[Excluded]) -> Infeasible:
    """No current offer matches the request, or none that can be planned."""
    name, listed = request.workload.source.name, _listed(excluded)
    if listed:
        return Infeasible(
            name, "machines that can run it", f"no such offer ({listed})", _alternative(request)
        )
    among = replace(request.machines, spot=request.options.spot)
    return Infeasible(
        name,
        "machines to rent",
        f"no current offer{among.described}",
        contradicting_filters(among).partition("; ")[2] or "`foretrain offers` lists all offers",
    )


def _nothing_fits(
    request: PlanProblem, shortfalls: Iterable[Excluded], excluded: Iterable[Excluded]
) -> Infeasible:
    """No machine can run the job; the one that lacks least memory names the constraint."""
    lacking = [
        (each.needed_bytes / each.capacity_bytes, each.needed_bytes, each.machine)
        for each in shortfalls
        if each.needed_bytes is not None and each.capacity_bytes is not None
    ]
    needed = "machines that can run it"
    if lacking:
        _, needed_bytes, machine = min(lacking, key=lambda each: each[0])
        needed = f"{format_bytes(needed_bytes)} on each GPU of {machine.removeprefix(f'1{SEVERAL}')}"
    listed = _listed(excluded)
    available = f"no such offer ({listed})" if listed else "no such offer"
    return Infeasible(request.workload.source.name, needed, available, _alternative(request))


def _listed(excluded: Iterable[Excluded]) -> str:
    return "; ".join(f"{each.machine_types}: {each.reason}" for each in exclusions(excluded)[:3])


def _alternative(request: PlanProblem) -> str:
    text = (
        "try a smaller `batch` or `seq_len`, a larger `max_gpus`, other `gpu` or `cloud`, another `precision`"
    )
    if request.may_search_layouts:
        return text
    return f"{text}, or `global_batch` with all strategies, which allows model parallelism"
