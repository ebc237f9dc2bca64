"""The size of a model and the tokens to train it on, for the least expected loss within money and time.

    for sizes of a family (`workloads.transformer_shapes`), from the expected best outwards
        the machines on which most tokens can be trained on within the limits      best first
        the loss of that size after these tokens                                   convergence.scaling_laws
    the size whose loss is least

The machines of a size are searched best first. What a machine can do at most is known before it is predicted:

    tokens <= seconds within the limits · devices · peak / FLOP per token
    tokens <= seconds within the limits · devices · tokens of a batch / its computing alone

A machine is predicted, as `plan` does it, only if neither bound is below what another one is predicted to do.
Sizes are a fixed ladder. Loss over size has one minimum where throughput changes smoothly with size, so the
search goes from rung to rung while the loss falls.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from itertools import count
from typing import Any

from foretrain.answers import Answer, Infeasible
from foretrain.convergence.options import REFERENCE_LAW
from foretrain.convergence.scaling_laws import (
    BATCH_LAW,
    LossForecast,
    ParametricLaw,
    ScalingLaw,
    best_batch_tokens,
    forecast_loss,
    laws,
    loss_law,
)
from foretrain.encoding import encode
from foretrain.errors import InvalidRequest, MissingData
from foretrain.estimates import Quantiles
from foretrain.facts.devices import Device
from foretrain.jobs.batch_limits import largest_batch, small_step
from foretrain.jobs.bill import price_of_offer
from foretrain.jobs.configurations import (
    ConfigurationSpace,
    Configured,
    configuration_space,
    configure,
)
from foretrain.jobs.configurations import verify as verify_configuration
from foretrain.jobs.job import Steps
from foretrain.jobs.length import length_of
from foretrain.jobs.options import BatchLimits, JobOptions, LengthOptions
from foretrain.planning.frontier import Plan
from foretrain.planning.machines import Machines, MachinesRequest, Shape, enumerate_machines
from foretrain.planning.options import Limits
from foretrain.planning.selection import chances, numbers
from foretrain.planning.table import JobConditions, plan_table
from foretrain.prediction.corrections.apply import resolve_cost_model
from foretrain.prediction.cost_models import CostModel
from foretrain.prediction.operators.pricing import DEFAULT
from foretrain.prediction.options import InputOptions
from foretrain.prediction.scenario import model_flop, peak_of, refuse_precision, usual_precision
from foretrain.prediction.strategies.strategy import plan_words
from foretrain.progress import Progress, no_progress
from foretrain.units import HOUR, format_count, format_duration, format_money
from foretrain.workloads.options import HALF_PRECISIONS, WorkloadRequest
from foretrain.workloads.transformer_shapes import (
    ShapedModel,
    TransformerShape,
    nearest_shape,
    transformer_shapes,
)
from foretrain.workloads.workload import Workload, workload_of

_RUNG = 1.4
"""Least ratio of parameters from rung to rung of the ladder; losses of neighbours differ by some 0.1 %."""
_SMALLER = (0, 2, 4)
"""Rungs below the expected best size that are compared at least: models that are cheaper to serve."""
_EXPECTED_SHARE_OF_PEAK = 0.3
"""Of the peak, where the search begins: a better guess saves a comparison, and changes no answer."""
_STEPS = "all that fit into the limits"


@dataclass(frozen=True)
class SizeProblem:
    """Money and time, the machines they may be spent on, how a step is run, and the law that chooses.

    `training` describes the workload of every size, but for its model. `params` fixes the size.
    """

    limits: Limits
    training: WorkloadRequest
    machines: MachinesRequest = field(default_factory=MachinesRequest)
    options: JobOptions = field(default_factory=JobOptions)
    law: str = REFERENCE_LAW
    params: float | None = None
    vocabulary: int | None = None
    cost_model: CostModel | str = DEFAULT

    def __post_init__(self) -> None:
        if not self.limits.any:
            raise InvalidRequest(
                "size needs a limit: give `budget` (e.g. 1000usd), `deadline` (e.g. 3d) or both"
            )
        if self.params is not None and not (math.isfinite(self.params) and self.params >= 1):
            raise InvalidRequest(f"`params` must be at least 1, got {self.params:g}")
        laws()[self.law]  # refuse an unknown name before any work

    def seconds_on(self, machines: Machines) -> float:
        """The time that machines may run within both limits, start-up included."""
        usd_per_hour = machines.offer.price(self.options.spot) * machines.hardware.nodes
        paid = self.limits.most_usd / usd_per_hour * HOUR if usd_per_hour > 0 else math.inf
        return min(self.limits.most_seconds, paid)


@dataclass(frozen=True)
class SizedRun:
    """A size, the tokens it can be trained on within the limits, and the machines on which that is most."""

    shape: TransformerShape
    tokens: float
    plan: Plan
    losses: Mapping[str, float]

    @property
    def tokens_per_parameter(self) -> float:
        """With embeddings counted once, as Hoffmann et al. count."""
        return self.tokens / self.shape.parameters_with_embedding

    def to_dict(self) -> dict[str, Any]:
        """The run as plain data."""
        shape = self.shape
        return {
            "model": shape.name,
            "parameters": shape.parameters,
            "parameters_with_one_embedding": shape.parameters_with_embedding,
            "layers": shape.layers,
            "width": shape.width,
            "heads": shape.heads,
            "shape_source": shape.source,
            "tokens": self.tokens,
            "tokens_per_parameter": self.tokens_per_parameter,
            "loss_by_law": dict(self.losses),
            "plan": self.plan.to_dict(),
        }


@dataclass(frozen=True)
class LawOptimum:
    """Which of the compared sizes a law prefers; `is_at_end`: the best may lie beyond those compared."""

    law: str
    place: int
    is_at_end: bool


@dataclass(frozen=True)
class SizeAnswer(Answer):
    """The answer. `runs` are by size; `chosen` and `for_serving` are places in it.

    `for_serving` has about half of the parameters, on the same budget: a little more loss for half the cost
    of inference; None where no such size was compared. `optima` has the preference of every law.
    """

    law: str
    deadline_seconds: float | None
    budget_usd: float | None
    runs: tuple[SizedRun, ...]
    chosen: int
    for_serving: int | None
    optima: tuple[LawOptimum, ...]
    forecast: LossForecast
    is_fixed: bool
    notes: tuple[str, ...]

    @property
    def run(self) -> SizedRun:
        """The run to do."""
        return self.runs[self.chosen]

    @property
    def loss(self) -> Quantiles:
        """The expected loss, nats per token."""
        return self.forecast.estimate.quantiles

    @property
    def config(self) -> dict[str, Any]:
        """The Hugging Face configuration of the chosen model, for `hf:config.json`."""
        return self.run.shape.config

    def to_dict(self) -> dict[str, Any]:
        """The JSON form; `chosen`, `for_serving` and the places of `optima` are indices of `runs`."""
        return {
            "law": self.law,
            "limits": {"deadline_seconds": self.deadline_seconds, "budget_usd": self.budget_usd},
            "chosen": self.chosen,
            "for_serving": self.for_serving,
            "size_is_given": self.is_fixed,
            "loss": {
                "law": self.forecast.law,
                "unit": self.forecast.estimate.unit,
                **encode(self.loss),
                "parts": {part.name: part.value for part in self.forecast.estimate.parts},
                "uncertainty": encode(self.forecast.sources),
            },
            "runs": [run.to_dict() for run in self.runs],
            "optima": encode(self.optima),
            "config": self.config,
            "notes": list(self.notes),
        }

    def summary(self) -> tuple[tuple[str, str], ...]:
        """Size, tokens, loss, machines, time and cost."""
        run = self.run
        return (
            ("model", run.shape.name),
            ("tokens", format_count(run.tokens)),
            ("loss", f"{self.loss.p50:.3f}"),
            ("machines", run.plan.hardware.name),
            ("time", format_duration(run.plan.seconds.p50)),
            ("cost", format_money(run.plan.usd.p50)),
        )


def size(problem: SizeProblem, progress: Progress = no_progress) -> SizeAnswer | Infeasible:
    """The size and tokens of the least expected loss within the limits."""
    law = laws()[problem.law]
    ladder = size_ladder(problem)
    progress("reading the offers")
    machines, _ = enumerate_machines(replace(problem.machines, spot=problem.options.spot))
    if not machines:
        among = replace(problem.machines, spot=problem.options.spot)
        return Infeasible(
            "size", "machines to rent", f"no current offer{among.described}",
            "`foretrain offers` lists all offers",
        )  # fmt: skip
    problem = in_one_precision(problem, machines)
    runs = _Runs(problem, ladder, _offers_by_shape(problem, machines), progress)
    if problem.params is None:
        best = _search(runs, law, _start(problem, ladder, machines))
    else:
        best = 0 if runs.at(0) is not None else None
    if best is None:
        return _nothing_fits(problem, ladder)
    return _answer(problem, law, runs, best)


def in_one_precision(problem: SizeProblem, machines: Iterable[Machines]) -> SizeProblem:
    """The problem in BF16 unless a precision is given; in FP16 or FP32 where no device has better."""
    given = problem.training.precision
    if given is not None:
        _refuse_precision_of_all({each.hardware.device for each in machines}, given)
        return problem
    usual = {usual_precision(each.hardware.device) for each in machines}
    precision = next(name for name in ("bf16", "fp16", "fp32") if name in usual)
    return replace(problem, training=replace(problem.training, precision=precision))


def _refuse_precision_of_all(devices: Iterable[Device], precision: str) -> None:
    """Raise `MissingData` for a precision that none of the devices has."""
    refused: MissingData | None = None
    for device in sorted(devices, key=lambda each: each.id):
        try:
            refuse_precision(device, precision)
        except MissingData as error:
            refused = refused or error
        else:
            return
    if refused is not None:
        raise refused


def size_ladder(problem: SizeProblem) -> tuple[TransformerShape, ...]:
    """The sizes that are compared: rungs of the family, each larger by a factor; or the one size given."""
    shapes = transformer_shapes(problem.training.seq_len, problem.vocabulary)
    if problem.params is not None:
        return (shapes[nearest_shape(shapes, problem.params)],)
    rungs: list[TransformerShape] = []
    for shape in shapes:
        if not rungs or shape.parameters >= _RUNG * rungs[-1].parameters:
            rungs.append(shape)
    return tuple(rungs)


class _Runs:
    """The best run of each rung, each found once."""

    def __init__(
        self,
        problem: SizeProblem,
        ladder: tuple[TransformerShape, ...],
        offers: Mapping[Shape, Machines],
        progress: Progress,
    ) -> None:
        self.problem = problem
        self.ladder = ladder
        self._offers = offers
        self._progress = progress
        self.known: dict[int, SizedRun | None] = {}

    def at(self, rung: int) -> SizedRun | None:
        """The run of a rung; None if no machine can train it within the limits."""
        if rung not in self.known:
            shape = self.ladder[rung]
            self._progress(f"comparing machines for {shape.name} (size {len(self.known) + 1})")
            self.known[rung] = best_run(self.problem, shape, self._offers)
        return self.known[rung]

    def regret(self, law: ScalingLaw, rung: int) -> float:
        """By the law; infinite where nothing can train it."""
        run = self.at(rung)
        return math.inf if run is None else law.regret(run.shape, run.tokens)


def _search(runs: _Runs, law: ScalingLaw, start: int) -> int | None:
    """The best rung: from the expected one and smaller ones, to whichever neighbour is better.

    The first run says how much can be computed; the law says which size that is for.
    """
    run = runs.at(start)
    while run is None and start > 0:
        start -= 1
        run = runs.at(start)
    if run is None:
        return None
    reference = loss_law(law)
    middle = nearest_shape(runs.ladder, reference.optimum(reference.flop(run.shape, run.tokens))[0])
    compared = {max(middle - distance, 0) for distance in _SMALLER}
    best = min(sorted(compared), key=lambda rung: runs.regret(law, rung))
    while True:
        beside = (rung for rung in (best, best - 1, best + 1) if 0 <= rung < len(runs.ladder))
        better = min(beside, key=lambda rung: runs.regret(law, rung))
        if better == best:
            return best
        best = better


def _start(problem: SizeProblem, ladder: tuple[TransformerShape, ...], machines: Iterable[Machines]) -> int:
    """Where the search begins: the best rung if machines computed at some share of their peak."""
    smallest = _workload(problem, ladder[0])
    peaks = _Peaks(smallest)
    flop = max(
        (
            peaks.at(each.hardware.device) * each.hardware.devices * problem.seconds_on(each)
            for each in machines
        ),
        default=0.0,
    )
    if not flop > 0:
        return 0
    law = loss_law(laws()[problem.law])
    return nearest_shape(ladder, law.optimum(_EXPECTED_SHARE_OF_PEAK * flop)[0])


def _workload(problem: SizeProblem, shape: TransformerShape) -> Workload:
    """A step of a size; weights are stored in half precision beside FP32 copies unless the request says how.

    That is how models of this kind are trained, on one device or many, and sizes compare.
    """
    asked = problem.training
    is_open = all(each is None for each in (asked.weights, asked.gradients, asked.autocast))
    has_masters = asked.master_weights or (is_open and asked.precision in HALF_PRECISIONS)
    training = replace(asked, model=shape.name, seq_len=shape.seq_len, master_weights=has_masters)
    return workload_of(training, ShapedModel(shape))


class _Peaks:
    """The peak of each device in the precision of a workload; 0 where the device does not have it."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._known: dict[str, float] = {}

    def at(self, device: Device) -> float:
        if device.id not in self._known:
            try:
                refuse_precision(device, self._workload.options.precision)
                self._known[device.id] = peak_of(small_step(self._workload), device)
            except MissingData:
                self._known[device.id] = 0.0
        return self._known[device.id]


def _offers_by_shape(problem: SizeProblem, machines: Iterable[Machines]) -> dict[Shape, Machines]:
    """Of machines that take the same time, those that may run longest, of equals the cheapest."""
    best: dict[Shape, Machines] = {}

    def rank(each: Machines) -> tuple[float, float]:
        return problem.seconds_on(each), -each.offer.price(problem.options.spot)

    for each in machines:
        known = best.get(each.shape)
        if known is None or rank(each) > rank(known):
            best[each.shape] = each
    return best


class _Known(IntEnum):
    """What is known of the tokens that machines can train on, from bounds to all that `predict` reports."""

    PEAK = 0
    COMPUTING = 1
    CONFIGURED = 2
    VERIFIED = 3


def best_run(
    problem: SizeProblem, shape: TransformerShape, offers: Mapping[Shape, Machines]
) -> SizedRun | None:
    """The machines on which a size can be trained on most tokens within the limits; None without any."""
    workload = _workload(problem, shape)
    bounds = peak_tokens(problem, workload, offers)
    most = max(bounds.values(), default=0.0)
    if most < 1:
        return None
    space = _space(problem, workload, shape, offers.values(), most)
    conditions = JobConditions(problem.options, None)
    rates: dict[str, float] = {}
    order = count()
    queue: list[tuple[float, int, _Known, Machines, Configured | None]] = []

    def push(tokens: float, known: _Known, on: Machines, chosen: Configured | None = None) -> None:
        if tokens >= 1:
            heapq.heappush(queue, (-tokens, next(order), known, on, chosen))

    for key, tokens in bounds.items():
        push(tokens, _Known.PEAK, offers[key])
    while queue:
        tokens, _, known, on, chosen = heapq.heappop(queue)
        device = on.hardware.device
        if known is _Known.PEAK:
            if device.id not in rates:
                rates[device.id] = _most_tokens_per_second(space, device, shape.seq_len)
            at_most = problem.seconds_on(on) * rates[device.id] * on.hardware.devices
            push(min(-tokens, at_most), _Known.COMPUTING, on)
        elif known is _Known.COMPUTING:
            configured = configure(space, on.hardware)
            if isinstance(configured, Configured) and configured.configuration.is_safe:
                push(_tokens(problem, configured, on, conditions, shape), _Known.CONFIGURED, on, configured)
        elif known is _Known.CONFIGURED:
            assert chosen is not None
            verified = verify_configuration(chosen)
            if verified.configuration.is_safe:
                push(_tokens(problem, verified, on, conditions, shape), _Known.VERIFIED, on, verified)
        else:
            assert chosen is not None
            return _run(problem, shape, on, chosen, conditions)
    return None


def peak_tokens(
    problem: SizeProblem, workload: Workload, offers: Mapping[Shape, Machines]
) -> dict[Shape, float]:
    """The tokens that machines would train on within the limits if they computed at their peak."""
    step, peaks = small_step(workload), _Peaks(workload)
    assert step.tokens
    flop_per_token = model_flop(step) / step.tokens
    return {
        key: problem.seconds_on(on) * peaks.at(on.hardware.device) * on.hardware.devices / flop_per_token
        for key, on in offers.items()
    }


def _space(
    problem: SizeProblem,
    workload: Workload,
    shape: TransformerShape,
    machines: Iterable[Machines],
    tokens: float,
) -> ConfigurationSpace:
    """The configurations to compare, as `plan` does for these tokens, at batches that train well."""
    length = length_of(LengthOptions(tokens=tokens), workload)
    assert length is not None
    batch = max(1, int(best_batch_tokens(shape, tokens) // shape.seq_len))
    return configuration_space(
        workload,
        [each.hardware for each in machines],
        length,
        BatchLimits(max_global_batch=min(batch, largest_batch(workload))),
        plan_words(),
        resolve_cost_model(problem.cost_model, workload),
        InputOptions(),
    )


def _most_tokens_per_second(space: ConfigurationSpace, device: Device, seq_len: int) -> float:
    """What one device computes at most: no update, no communication, whether a batch fits or not."""
    table = space.on(device).table
    steps = ((batch, table.replica(batch, device)) for batch in table.batches)
    return max(batch * seq_len / max(step.body, step.host[0]) for batch, step in steps)


def _with_steps(chosen: Configured, steps: int) -> Configured:
    exactly = Quantiles(steps, steps, steps)
    configuration = replace(chosen.configuration, job_steps=Steps(exactly, _STEPS))
    return replace(chosen, configuration=configuration)


def _tokens(
    problem: SizeProblem,
    chosen: Configured,
    on: Machines,
    conditions: JobConditions,
    shape: TransformerShape,
) -> float:
    """The tokens of the most steps within the limits."""
    return _most_steps(problem, chosen, on, conditions) * chosen.configuration.global_batch * shape.seq_len


def _most_steps(problem: SizeProblem, chosen: Configured, on: Machines, conditions: JobConditions) -> int:
    """The most steps that keep the limits with the confidence asked for; 0 if not even one does."""
    price = price_of_offer(on.offer, on.hardware.nodes, problem.options.spot)
    configuration = chosen.configuration

    def keeps_limits(steps: int) -> bool:
        try:
            seconds = conditions.time(_with_steps(chosen, steps)).seconds
        except InvalidRequest:  # interruptions never let the job end
            return False
        of = numbers(
            [seconds],
            [price.bill(seconds)],
            [configuration.reliability],
            [configuration.within_prediction],
        )
        return float(chances(of, problem.limits)[2][0]) >= problem.limits.confidence

    low, high = 0, max(1, math.ceil(problem.seconds_on(on) / configuration.step_seconds.p50))
    while keeps_limits(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if keeps_limits(middle) else (low, middle)
    return low


def _run(
    problem: SizeProblem,
    shape: TransformerShape,
    on: Machines,
    chosen: Configured,
    conditions: JobConditions,
) -> SizedRun:
    steps = _most_steps(problem, chosen, on, conditions)
    configured = _with_steps(chosen, steps)
    (row,) = plan_table((on,), {on.shape: configured}, conditions).rows
    configuration = configured.configuration
    of = numbers(
        [row.time.seconds], [row.usd], [configuration.reliability], [configuration.within_prediction]
    )
    plan = row.plan(*(float(each[0]) for each in chances(of, problem.limits)))
    tokens = float(steps * configuration.global_batch * shape.seq_len)
    losses = {law.name: law.loss(shape, tokens) for law in laws().values() if isinstance(law, ParametricLaw)}
    return SizedRun(shape, tokens, plan, losses)


def _answer(problem: SizeProblem, law: ScalingLaw, runs: _Runs, best: int) -> SizeAnswer:
    rungs = sorted(rung for rung, run in runs.known.items() if run is not None)
    listed = tuple(run for rung in rungs if (run := runs.known[rung]) is not None)
    chosen = listed[rungs.index(best)]
    step = chosen.plan.configuration.step_seconds
    forecast = forecast_loss(
        loss_law(law),
        chosen.shape,
        chosen.tokens,
        chosen.tokens * step.p50 / step.p90,
        chosen.tokens * step.p50 / step.p10,
    )
    smaller = [
        place for place, run in enumerate(listed) if 2 * run.shape.parameters <= 1.1 * chosen.shape.parameters
    ]
    return SizeAnswer(
        law=law.name,
        deadline_seconds=problem.limits.deadline,
        budget_usd=problem.limits.budget,
        runs=listed,
        chosen=rungs.index(best),
        for_serving=smaller[-1] if smaller else None,
        optima=() if problem.params is not None else tuple(_optima(runs, rungs)),
        forecast=forecast,
        is_fixed=problem.params is not None,
        notes=tuple(_notes(problem, law, chosen, is_last=best == len(runs.ladder) - 1, is_first=best == 0)),
    )


def _optima(runs: _Runs, rungs: list[int]) -> Iterator[LawOptimum]:
    for law in laws().values():
        place = min(range(len(rungs)), key=lambda place: runs.regret(law, rungs[place]))
        yield LawOptimum(law.name, place, is_at_end=place in (0, len(rungs) - 1))


def _notes(
    problem: SizeProblem, law: ScalingLaw, run: SizedRun, is_last: bool, is_first: bool
) -> Iterator[str]:
    """What the answer rests on, and where it is an extrapolation."""
    shown = loss_law(law)
    for each, value in shown.extrapolations(run.shape, run.tokens):
        yield (
            f"extrapolated: {shown.name} was fitted on {format_count(each.least)} to "
            f"{format_count(each.most)} {each.quantity}, and this run has {format_count(value)}"
        )
    if problem.params is not None:
        asked, has = problem.params, run.shape.parameters
        if not math.isclose(asked, has, rel_tol=0.01):
            yield f"the published shape nearest to {format_count(asked)} parameters has {format_count(has)}"
    elif is_first or is_last:
        end, beyond = ("smallest", "smaller") if is_first else ("largest", "larger")
        yield f"this is the {end} model of the family: the best may be {beyond}"
    if law is not shown:
        yield f"{law.name} chooses a size but predicts no loss: the loss is that of {shown.name}"
    yield (
        f"the loss is per token of {shown.data} ({shown.tokenizer}); on other data its level differs, the "
        "best size differs less"
    )
    yield (
        "every token is seen once, and the learning rate schedule is made for this number of tokens; global "
        f"batches are at most what {BATCH_LAW} finds best, and smaller ones are assumed to train as well"
    )


def _nothing_fits(problem: SizeProblem, ladder: tuple[TransformerShape, ...]) -> Infeasible:
    limits = problem.limits
    given = (
        ("" if limits.budget is None else f"a budget of {format_money(limits.budget)}"),
        ("" if limits.deadline is None else f"a deadline of {format_duration(limits.deadline)}"),
    )
    smallest = ladder[0]
    return Infeasible(
        "size",
        f"machines that train {smallest.name} ({smallest.layers} layers, {smallest.width} wide) for a step",
        f"none within {' and '.join(filter(None, given))}",
        "try a larger `budget` or `deadline`, other `gpu` or `cloud`, a larger `max_gpus`, smaller "
        "`params` or `seq_len`",
    )
