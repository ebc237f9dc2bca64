"""The buyer's guide: networks x hardware x global batch sizes, with time, cost, memory and a verdict.

Every machine trains the same global batch, divided over its devices, so cells of one batch size do the same
work and their times and costs are comparable.

    epoch = ⌈samples / batch⌉ · step        USD of an epoch = epoch · USD of an hour, billed exactly
    speed-up = step of one device of the same kind / step        both of the same global batch
    Δ = speed-up / (cost / cost of that one device)              `planning.speedup`

Hourly prices are on demand; a real bill is rounded up to the units of the provider. Where a machine has no
price, Δ assumes an equal price for each device.

References: S. K. Pani, B. Hand, R. Yalamanchili, "Performance Analysis of Distributed Deep Learning" (batches
of 32 to 8,192 on a CPU and 1, 2, 4, 8 GPUs); "Multi-GPU Neural Network Training in the Cloud" (network choke
and GPU choke); K. B. Sanghvi, "Prediction & Cost Analysis of Distributed Deep Learning Jobs", table I and Δ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from foretrain.answers import Answer
from foretrain.encoding import encode
from foretrain.errors import InvalidRequest
from foretrain.planning.guide.cells import (
    CellStep,
    GuideCell,
    Machine,
    NoRun,
    cell_of,
    default_machines,
    layout_on,
    one_of,
    runs,
)
from foretrain.planning.guide.summary import KindSummary, Summary, summarise
from foretrain.prediction.corrections.apply import resolve_cost_model
from foretrain.prediction.cost_models import CostModel, OperatorCostModel
from foretrain.prediction.memory.estimate import LARGEST
from foretrain.prediction.operators.pricing import DEFAULT, RooflineModel
from foretrain.prediction.scenario import PRECISION, usual_precision
from foretrain.prediction.strategies.strategy import DATA_PARALLEL
from foretrain.workloads.workload import Workload

BATCHES = tuple(2**power for power in range(5, 14))
"""Global batches of 32 to 8,192, as in the first reference."""

Progress = Callable[[str], None]


@dataclass(frozen=True)
class GuideProblem:
    """Models, machines and global batches of a guide; `samples` of an epoch adds the time of epochs."""

    workloads: tuple[Workload, ...]
    machines: tuple[Machine, ...] = ()
    batches: tuple[int, ...] = BATCHES
    samples: int | None = None
    strategy: str = DATA_PARALLEL

    def __post_init__(self) -> None:
        if not self.workloads:
            raise InvalidRequest("a guide needs at least one model")
        if not self.batches or min(self.batches) < 1:
            raise InvalidRequest(
                f"`batch` must be one or more global batches of at least 1, got "
                f"{', '.join(map(str, self.batches)) or None}"
            )
        if max(self.batches) > LARGEST:
            raise InvalidRequest(
                f"a global batch of {max(self.batches):,} is beyond any training published; give batches "
                f"of at most {LARGEST:,}"
            )
        if self.samples is not None and self.samples < 1:
            raise InvalidRequest(f"`samples` must be at least 1, got {self.samples}")


@dataclass(frozen=True)
class ModelGuide:
    """One model: for every machine a row with a cell for every batch, and a summary of them."""

    name: str
    workload: Workload
    cells: tuple[tuple[GuideCell, ...], ...]
    summary: Summary


@dataclass(frozen=True)
class Guide(Answer):
    """The whole guide. `batches` are global, ascending; rows of cells belong to `machines`."""

    machines: tuple[Machine, ...]
    batches: tuple[int, ...]
    samples: int | None
    strategy: str
    models: tuple[ModelGuide, ...]
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """The JSON form: machines by name, without data sheets."""
        return {
            "strategy": self.strategy,
            "samples": self.samples,
            "batches": list(self.batches),
            "machines": [_machine_to_dict(machine) for machine in self.machines],
            "models": [_model_to_dict(self, model) for model in self.models],
            "notes": list(self.notes),
        }

    def summary(self) -> tuple[tuple[str, str], ...]:
        """The verdict on each model."""
        machines = ", ".join(machine.name for machine in self.machines)
        verdicts = ((model.name, model.summary.verdict) for model in self.models)
        return (("machines", machines), *verdicts)


def guide(request: GuideProblem, progress: Progress = lambda _: None) -> Guide:
    """The guide of a request; `progress` receives the name of the current work."""
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
    request: GuideProblem,
    progress: Progress,
) -> ModelGuide:
    name = workload.source.name
    rows: list[tuple[GuideCell, ...]] = []
    on_one: dict[str, tuple[CellStep | NoRun, ...]] = {}
    for index, machine in enumerate(machines):
        done = f"{index * len(batches)} of {len(machines) * len(batches)} cells"
        progress(f"{name} on {machine.name} ({done})")
        model, kind = _cost_model(workload, machine), machine.hardware.device.id
        if kind not in on_one:
            on_one[kind] = tuple(runs(workload, one_of(machine), DATA_PARALLEL, batches, model))
        on_all = on_one[kind]
        if machine.devices > 1:
            on_all = tuple(runs(workload, machine.hardware, request.strategy, batches, model))
        rows.append(
            tuple(
                cell_of(index, machine, batch, run, one, request.samples)
                for batch, run, one in zip(batches, on_all, on_one[kind], strict=True)
            )
        )
    return ModelGuide(name, workload, tuple(rows), summarise(machines, batches, rows))


def _cost_model(workload: Workload, machine: Machine) -> CostModel:
    return (
        OperatorCostModel(RooflineModel.name) if machine.is_bound else resolve_cost_model(DEFAULT, workload)
    )


def _notes(machines: Sequence[Machine], models: Sequence[ModelGuide]) -> Iterator[str]:
    """What was assumed."""
    bounds = [machine.name for machine in machines if machine.is_bound]
    if bounds:
        yield (
            f"times marked > are the least the data sheet allows: {', '.join(bounds)} was not measured; "
            "`foretrain calibrate --here` measures the CPU of this machine"
        )
    if any(machine.offer is not None for machine in machines):
        yield "costs are by the second on demand; providers bill in units of their own"
    if any(machine.offer is None and machine.devices > 1 for machine in machines):
        yield "without a current offer, delta assumes an equal price for each device"
    if any(_accumulates(cell) for model in models for row in model.cells for cell in row):
        yield "* trained in micro-batches, since the whole batch does not fit"
    for run in (cell.figures.run for model in models for row in model.cells for cell in row if cell.figures):
        yield from run.notes


def _accumulates(cell: GuideCell) -> bool:
    return cell.figures is not None and cell.figures.run.micro_batches > 1


def _machine_to_dict(machine: Machine) -> dict[str, Any]:
    hardware, offer = machine.hardware, machine.offer
    return {
        "name": machine.name,
        "device": hardware.device.id,
        "devices_per_node": hardware.devices_per_node,
        "nodes": hardware.nodes,
        "usual_precision": usual_precision(hardware.device),
        "usd_per_hour": machine.usd_per_hour,
        "offer": None if offer is None else f"{offer.provider}:{offer.instance}",
        "region": None if offer is None else offer.region,
        "as_of": None if offer is None else encode(offer.as_of),
        "is_bound": machine.is_bound,
    }


def _model_to_dict(guide: Guide, model: ModelGuide) -> dict[str, Any]:
    summary, options = model.summary, model.workload.options
    return {
        "model": model.name,
        "precision": None if PRECISION in model.workload.left_open else options.precision,
        "optimizer": encode(options.optimizer),
        "verdict": summary.verdict,
        "kinds": [_kind_to_dict(guide, kind) for kind in summary.kinds],
        "fastest": _best_to_dict(guide, summary.fastest),
        "cheapest": _best_to_dict(guide, summary.cheapest),
        "best_value": _best_to_dict(guide, summary.best_value),
        "picks": [
            {
                "batch": pick.batch,
                "fastest": _name(guide, pick.fastest),
                "cheapest": _name(guide, pick.cheapest),
                "best_value": _name(guide, pick.best_value),
            }
            for pick in summary.picks
        ],
        "cells": [_cell_to_dict(guide, cell) for row in model.cells for cell in row],
    }


def _kind_to_dict(guide: Guide, kind: KindSummary) -> dict[str, Any]:
    return {
        "device": kind.device,
        "limit": encode(kind.limit),
        "cells": kind.cells,
        "of_cells": kind.of_cells,
        "pays": [
            {"machine": _name(guide, each.machine), "devices": each.devices, "from_batch": each.from_batch}
            for each in kind.pays
        ],
        "sentence": kind.sentence,
    }


def _name(guide: Guide, index: int | None) -> str | None:
    return None if index is None else guide.machines[index].name


def _best_to_dict(guide: Guide, cell: GuideCell | None) -> dict[str, Any] | None:
    return None if cell is None else {"machine": _name(guide, cell.machine), "batch": cell.batch}


def _cell_to_dict(guide: Guide, cell: GuideCell) -> dict[str, Any]:
    key: dict[str, Any] = {"machine": _name(guide, cell.machine), "batch": cell.batch}
    figures = cell.figures
    if figures is None:
        return {**key, "blank": encode(cell.blank), "reason": cell.reason}
    run, epoch = figures.run, figures.epoch
    values = {
        "step_seconds": run.step_seconds,
        "is_bound": figures.is_bound,
        "samples_per_second": run.samples_per_second,
        "epoch_seconds": None if epoch is None else epoch.seconds,
        "usd_per_epoch": figures.usd_per_epoch,
        "usd_per_million_samples": figures.usd_per_million_samples,
        "memory_bytes": run.memory_bytes,
        "capacity_bytes": run.capacity_bytes,
        "micro_batches": run.micro_batches,
        "speedup": figures.speedup,
        "efficiency": figures.efficiency,
        "speedup_per_fold_of_cost": figures.speedup_per_fold_of_cost,
        "moved_bytes": run.moved_bytes,
        "coordination_ratio": run.coordination_ratio,
        "choke": figures.choke,
        "bottleneck": {"kind": run.limit, "verdict": run.verdict},
        "knowledge": run.knowledge,
    }
    return key | {name: encode(value) for name, value in values.items()}
