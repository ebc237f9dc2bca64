"""The best plan for a job: every offer, alone and several together, in its best way, against time and money.

    every offer x number of machines x strategy x batch size  ->  time and money of the whole job  ->  front

For given machines money grows with time, so each keeps only its quickest way, and nothing is lost. What then
stands on the front is made sure of in full (`planning.settling`) until all of it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from foretrain.errors import Infeasible, InvalidRequest, MissingData
from foretrain.jobs.batch_limits import BatchLimits
from foretrain.jobs.configurations import STRATEGIES
from foretrain.jobs.interruptions import interruptions
from foretrain.jobs.job import Job, JobOptions
from foretrain.jobs.length import KnownLength, Length, LengthRequest, length_of
from foretrain.jobs.smallest_step import largest_batch
from foretrain.planning.frontier import Frontier, Plan
from foretrain.planning.machines import MachinesRequest, Reasons, machines
from foretrain.planning.selection import Choice, Limits, choose, numbers, reasons
from foretrain.planning.table import Rows
from foretrain.prediction.cost_models.step_models import CostModel, cost_model
from foretrain.prediction.operators.catalogue import DEFAULT
from foretrain.prediction.step.input_pipeline import InputOptions
from foretrain.workloads.workload import Workload

if TYPE_CHECKING:
    from foretrain.planning.frontier import TwoPhases
    from foretrain.planning.job_stream import JobStream
    from foretrain.prediction.answer import Prediction

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """How often the job is run, and what owning machines like the chosen ones would cost."""

    jobs_per_year: float
    price_usd: float | None = None
    usd_per_kwh: float | None = None

    def __post_init__(self) -> None:
        if self.price_usd is not None and not self.price_usd > 0:
            raise InvalidRequest(f"machines bought for ${self.price_usd:g}: give a price above 0")


@dataclass(frozen=True)
class PlanRequest:
    """A job, where it may run, and what it may take.

    `strategies` are those to compare; `layouts` searches tensor, pipeline and other layouts too where state
    must be sharded, on what stands on the front. `in_full` adds the prediction of the chosen plan's step with
    all its parts. Both take seconds.
    """

    workload: Workload
    length: LengthRequest
    running: JobOptions = field(default_factory=JobOptions)
    machines: MachinesRequest = field(default_factory=MachinesRequest)
    batches: BatchLimits = field(default_factory=BatchLimits)
    strategies: tuple[str, ...] = STRATEGIES
    limits: Limits = field(default_factory=Limits)
    input: InputOptions = field(default_factory=InputOptions)
    model: CostModel | str = DEFAULT
    stream: StreamOptions | None = None
    layouts: bool = False
    in_full: bool = False

    @property
    def may_divide(self) -> bool:
        """Whether a model too large for data parallelism may be divided otherwise, at one global batch."""
        batches = self.batches
        is_free = batches.global_batch is not None and batches.micro_batches is None
        return is_free and set(self.strategies) == set(STRATEGIES)

    def __post_init__(self) -> None:
        unknown = [name for name in self.strategies if name not in STRATEGIES]
        if unknown:
            raise InvalidRequest(f"plan compares {', '.join(STRATEGIES)}; {unknown[0]!r} is none of them")
        if not self.length.is_known:
            raise InvalidRequest(
                "say how long the job is: --epochs with --samples, or --steps, or --target with --log"
            )
        if self.running.usd_per_hour is not None:
            raise InvalidRequest("prices are those of the offers; a price of your own is for `predict`")
        if self.running.region is not None:
            raise InvalidRequest("jobs run where their offers are: name regions among the machines")
        _check(self.running)


def _check(running: JobOptions) -> None:
    """Refuse what makes sense on no machine, before each of them is left out for it."""
    interruptions(1, 1, running.spot, running.interruptions_per_day)
    every = running.checkpoint_every_seconds
    if every is not None and not every > 0:
        raise InvalidRequest(f"checkpoints every {every:g} s of work: give more than 0")


def plan(request: PlanRequest, progress: Progress = lambda _: None) -> Frontier | Infeasible:
    """Every machine that could run the job, the front among them, and which to take."""
    left_out = Reasons()
    progress("reading the offers")
    among = replace(request.machines, spot=request.running.spot)
    found = machines(among, left_out)
    length = _length(request)
    if not (found or left_out.told()):
        return _no_offer(request, among)
    progress("walking through the step")
    limits = request.batches.up_to(largest_batch(request.workload, request.length.samples))
    model = cost_model(request.model, request.workload)
    rows = Rows(
        request.workload, model, length, limits, request.running, request.length.samples, request.layouts
    )
    of_offers = left_out.copy()
    if found:
        rows.fill(found, request.strategies, request.input, left_out, progress)
    sure = _settled(request, rows, length, left_out, progress)
    if found and sure is None and request.may_divide:
        left_out = of_offers
        rows.divide(found, left_out, progress)
        sure = _settled(request, rows, length, left_out, progress)
    if sure is None:
        return _nothing(request, rows, left_out)
    return _frontier(request, rows, *sure, length, left_out)


def _length(request: PlanRequest) -> Length:
    """How long the job is; steps, as given or of a log, must be of some batch."""
    length = length_of(request.length)
    assert length is not None, "the request checked it"
    batches = request.batches
    steps_of_any = (
        isinstance(length, KnownLength) and length.epoch_samples is None and length.reference_batch is None
    )
    if steps_of_any and batches.batch is None and batches.global_batch is None:
        raise InvalidRequest(
            "so many steps of which batch? Give --global-batch, or --reference-batch to have others compared"
        )
    return length


def _settled(
    request: PlanRequest, rows: Rows, length: Length, left_out: Reasons, progress: Progress
) -> tuple[Choice, TwoPhases | None] | None:
    """Choose, make sure of what is told, and choose again, until all of it is sure; None if none is left."""
    while rows.plans:
        plans = rows.plans
        choice = choose(numbers([p.seconds for p in plans], [p.usd for p in plans]), request.limits)
        progress("making sure of the front")
        if not rows.settle(choice.told, left_out):
            continue
        two = _two_phases(request, rows, plans, length)
        phases = () if two is None else (two.first, two.second)
        if rows.settle({plans.index(phase) for phase in phases}, left_out):
            return choice, two
    return None


def _frontier(
    request: PlanRequest,
    rows: Rows,
    choice: Choice,
    two: TwoPhases | None,
    length: Length,
    left_out: Reasons,
) -> Frontier:
    limits, plans = request.limits, _with_probabilities(rows.plans, choice)
    order = sorted(range(len(plans)), key=lambda index: (plans[index].usd.p50, plans[index].seconds.p50))
    place = {old: new for new, old in enumerate(order)}
    ordered = [plans[index] for index in order]
    shown = plans[choice.shown]
    job = rows.job_of(choice.shown)
    stream, untold = _stream(request, shown, job)
    return Frontier(
        model=request.workload.source.name,
        deadline_seconds=limits.deadline_seconds,
        budget_usd=limits.budget_usd,
        plans=tuple(ordered),
        reasons=reasons(
            [each.seconds.p50 for each in ordered],
            [each.usd.p50 for each in ordered],
            limits.deadline,
            limits.budget,
        ),
        front=tuple(place[index] for index in choice.front),
        cheapest=None if choice.cheapest is None else place[choice.cheapest],
        fastest=None if choice.fastest is None else place[choice.fastest],
        knee=place[choice.knee],
        chosen=None if choice.chosen is None else place[choice.chosen],
        shown=place[choice.shown],
        job=job,
        prediction=_predicted(request, shown) if request.in_full else None,
        two_phases=two,
        job_stream=stream,
        left_out=left_out.told(),
        considered=rows.compared,
        notes=(*_notes(request, length, job), *untold),
    )


def _with_probabilities(plans: list[Plan], choice: Choice) -> list[Plan]:
    columns = (choice.in_time.tolist(), choice.in_budget.tolist(), choice.both.tolist())
    return [
        replace(each, in_time=in_time, in_budget=in_budget, both=both)
        for each, in_time, in_budget, both in zip(plans, *columns, strict=True)
    ]


def _predicted(request: PlanRequest, shown: Plan) -> Prediction:
    """The chosen plan's step in full."""
    from foretrain.facts.clusters import Cluster
    from foretrain.prediction.predict import predict
    from foretrain.prediction.scenario import Parallelism, Scenario

    way, options = shown.way, request.workload.options
    workload = replace(
        request.workload,
        sizes=replace(request.workload.sizes, batch=way.batch),
        options=replace(options, checkpoint_activations=way.checkpoint_activations),
    )
    parallelism = Parallelism(
        way.strategy,
        micro_batches=way.micro_batches if way.micro_batches > 1 else None,
        links=shown.hardware.links,
        network=shown.hardware.network,
    )
    cluster = Cluster(shown.hardware.name, (shown.hardware,))
    answer = predict(Scenario(workload, cluster, parallelism, request.model, request.input))
    assert not isinstance(answer, Infeasible), "the plan was verified"
    return answer


def _two_phases(request: PlanRequest, rows: Rows, plans: list[Plan], length: Length) -> TwoPhases | None:
    """Two phases, where limits make them worth a thought."""
    if not request.limits.any:
        return None
    from foretrain.planning.two_phases.two_phases import two_phases

    terms = [rows.terms_of(each) for each in plans]
    flat = length.flattens_at_share
    return two_phases(plans, terms, request.limits, request.running, rows.state_bytes, flat)


def _stream(request: PlanRequest, shown: Plan, job: Job) -> tuple[JobStream | None, tuple[str, ...]]:
    """Renting against buying, if that was asked for; and why it cannot be told, which spoils no plan."""
    if request.stream is None:
        return None, ()
    from foretrain.planning.job_stream import JobStreamRequest, rent_or_buy_for_jobs

    asked = JobStreamRequest(
        hardware=shown.hardware,
        job_seconds=job.seconds,
        jobs_per_year=request.stream.jobs_per_year,
        rent_usd_per_hour=shown.usd_per_hour,
        price_usd=request.stream.price_usd,
        usd_per_kwh=request.stream.usd_per_kwh,
    )
    try:
        return rent_or_buy_for_jobs(asked), ()
    except MissingData as error:
        return None, (f"renting is not compared with buying: {error} (--buy-price)",)


def _notes(request: PlanRequest, length: Length, job: Job) -> tuple[str, ...]:
    notes = list(job.notes)
    if request.batches.global_batch is None:
        notes += length.notes_where_batch_is_chosen
    if request.batches.is_open:
        most = largest_batch(request.workload, request.length.samples)
        notes.append(f"global batches up to {most:,} are compared; --max-global-batch allows others")
    if request.input.dataset is None:
        notes.append("samples are taken to be in memory already; --dataset tells what reading them takes")
    return tuple(dict.fromkeys(notes))


def _no_offer(request: PlanRequest, among: MachinesRequest) -> Infeasible:
    """Nobody offers what was asked for."""
    return Infeasible(
        request.workload.source.name,
        "machines to rent",
        f"no current offer{among.wanted}",
        "`foretrain offers` lists what there is",
    )


def _nothing(request: PlanRequest, rows: Rows, left_out: Reasons) -> Infeasible:
    """Nothing can run the job."""
    told = "; ".join(f"{each.machine_types}: {each.reason}" for each in left_out.told()[:3])
    divide = "" if request.may_divide else ", or --global-batch with all strategies, to divide the model"
    return Infeasible(
        request.workload.source.name,
        rows.needed or "machines that can run it",
        f"no such offer ({told})" if told else "no such offer",
        "try a smaller batch or sequence, --max-gpus, other --gpu or --cloud, another precision" + divide,
    )
