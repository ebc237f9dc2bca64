"""The buyer's guide: networks x hardware x global batch sizes, with time, cost, memory and a verdict.

Every machine trains the same global batch, shared out over its devices, so that cells of one batch size do
the same work: their times compare, and so do their costs.

    epoch = ⌈samples / batch⌉ · step        USD of an epoch = epoch · USD of an hour, billed exactly
    speed-up = step of one device of the same kind / step        both of the same global batch
    Δ = speed-up / (cost / cost of that one device)              `planning.speedup`

Prices of an hour are on demand; a real bill is rounded up to the provider's units. Where a machine has no
price, Δ is told as if devices cost the same each.

References: S. K. Pani, B. Hand, R. Yalamanchili, "Performance Analysis of Distributed Deep Learning" (batches
of 32 to 8,192 on a CPU and 1, 2, 4, 8 GPUs); "Multi-GPU Neural Network Training in the Cloud" (network choke
and GPU choke); K. B. Sanghvi, "Prediction & Cost Analysis of Distributed Deep Learning Jobs", table I and Δ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from foretrain.errors import InvalidRequest
from foretrain.planning.guide.cells import Cell, cell_of
from foretrain.planning.guide.machines import Machine, default_machines, one_of
from foretrain.planning.guide.runs import Known, NoRun, Run, layout_on, runs
from foretrain.planning.guide.summary import Summary, summarise
from foretrain.prediction.cost_models.step_models import CostModel, OperatorCostModel, cost_model
from foretrain.prediction.operators.catalogue import DEFAULT
from foretrain.prediction.operators.roofline import RooflineModel
from foretrain.workloads.workload import Workload

BATCHES = tuple(2**power for power in range(5, 14))
"""Global batches of 32 to 8,192, as in the first reference."""

Progress = Callable[[str], None]


@dataclass(frozen=True)
class GuideRequest:
    """What a guide is to cover; `samples` of an epoch, where epochs are to be told."""

    workloads: tuple[Workload, ...]
    machines: tuple[Machine, ...] = ()
    batches: tuple[int, ...] = BATCHES
    samples: int | None = None
    strategy: str = "ddp"

    def __post_init__(self) -> None:
        if not self.workloads:
            raise InvalidRequest("a guide needs at least one model")
        if not self.batches or min(self.batches) < 1:
            raise InvalidRequest(
                f"global batches must be at least 1, got {', '.join(map(str, self.batches))}"
            )
        if self.samples is not None and self.samples < 1:
            raise InvalidRequest(f"an epoch of {self.samples} samples: give at least 1")


@dataclass(frozen=True)
class ModelGuide:
    """One model: a row of cells for every machine, a cell for every batch, and what follows from them."""

    name: str
    workload: Workload
    cells: tuple[tuple[Cell, ...], ...]
    summary: Summary


@dataclass(frozen=True)
class Guide:
    """The whole guide. `batches` are global, rising; rows of cells belong to `machines`."""

    machines: tuple[Machine, ...]
    batches: tuple[int, ...]
    samples: int | None
    strategy: str
    models: tuple[ModelGuide, ...]
    notes: tuple[str, ...]


def guide(request: GuideRequest, progress: Progress = lambda _: None) -> Guide:
    """Fill the guide; `progress` is told what is being worked on."""
    machines = request.machines or default_machines()
    _check_strategy(request.strategy, machines)
    batches = tuple(sorted(set(request.batches)))
    models = tuple(
        _model_guide(workload, machines, batches, request, progress) for workload in request.workloads
    )
    notes = tuple(dict.fromkeys(_notes(machines, models)))
    return Guide(machines, batches, request.samples, request.strategy, models, notes)


def _check_strategy(strategy: str, machines: Sequence[Machine]) -> None:
    """Refuse a strategy that suits none of the machines."""
    for machine in machines:
        try:
            layout_on(strategy, machine.hardware)
        except InvalidRequest as error:
            refusal = error
        else:
            return
    raise refusal


def _model_guide(
    workload: Workload,
    machines: Sequence[Machine],
    batches: tuple[int, ...],
    request: GuideRequest,
    progress: Progress,
) -> ModelGuide:
    name, known, rows = workload.source.name, Known(workload), []
    alone = _Alone(known, batches)
    for place, machine in enumerate(machines):
        done = f"{place * len(batches)} of {len(machines) * len(batches)} cells"
        progress(f"{name} on {machine.name} ({done})")
        ones = found = alone.on(machine)
        if machine.devices > 1:
            tells = _tells(workload, machine)
            found = tuple(runs(known, machine.hardware, request.strategy, batches, tells))
        steps = zip(batches, found, ones, strict=True)
        rows.append(
            tuple(cell_of(place, machine, batch, run, one, request.samples) for batch, run, one in steps)
        )
    return ModelGuide(name, workload, tuple(rows), summarise(machines, batches, rows))


class _Alone:
    """Steps of one device of each kind, told once."""

    def __init__(self, known: Known, batches: tuple[int, ...]) -> None:
        self._known, self._batches = known, batches
        self._of_kind: dict[str, tuple[Run | NoRun, ...]] = {}

    def on(self, machine: Machine) -> tuple[Run | NoRun, ...]:
        """The steps of one device of the machine's kind."""
        kind = machine.hardware.device.id
        if kind not in self._of_kind:
            tells = _tells(self._known.workload, machine)
            self._of_kind[kind] = tuple(runs(self._known, one_of(machine), "ddp", self._batches, tells))
        return self._of_kind[kind]


def _tells(workload: Workload, machine: Machine) -> CostModel:
    return OperatorCostModel(RooflineModel.name) if machine.is_bound else cost_model(DEFAULT, workload)


def _notes(machines: Sequence[Machine], models: Sequence[ModelGuide]) -> Iterator[str]:
    """What was assumed."""
    bounds = [machine.name for machine in machines if machine.is_bound]
    if bounds:
        yield (
            f"times marked > are the least the data sheet allows: nobody timed {', '.join(bounds)}; "
            "`foretrain calibrate --here` times this machine's own CPU"
        )
    if any(machine.offer is not None for machine in machines):
        yield "costs are by the second on demand; providers bill in units of their own"
    if any(machine.offer is None and machine.devices > 1 for machine in machines):
        yield "where nobody offers a machine now, delta is told as if each device cost the same"
    if any(_accumulates(cell) for model in models for row in model.cells for cell in row):
        yield "* trained in micro-batches, one after the other, since the whole batch does not fit"
    for run in (cell.figures.run for model in models for row in model.cells for cell in row if cell.figures):
        yield from run.notes


def _accumulates(cell: Cell) -> bool:
    return cell.figures is not None and cell.figures.run.micro_batches > 1
