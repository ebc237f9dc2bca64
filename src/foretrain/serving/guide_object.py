"""The buyer's guide as an object for JSON: names instead of places, and no data sheets."""

from __future__ import annotations

from typing import Any

from foretrain.planning.guide.cells import Cell
from foretrain.planning.guide.guide import Guide, ModelGuide
from foretrain.planning.guide.machines import Machine
from foretrain.planning.guide.summary import Kind


def guide_object(guide: Guide) -> dict[str, Any]:
    """The whole guide. Times in seconds, sizes in bytes, money in USD."""
    return {
        "strategy": guide.strategy,
        "samples": guide.samples,
        "batches": guide.batches,
        "machines": [_machine(machine) for machine in guide.machines],
        "models": [_model(guide, model) for model in guide.models],
        "notes": guide.notes,
    }


def _machine(machine: Machine) -> dict[str, Any]:
    hardware, offer = machine.hardware, machine.offer
    return {
        "name": machine.name,
        "device": hardware.device.id,
        "devices_per_node": hardware.devices_per_node,
        "nodes": hardware.nodes,
        "usd_per_hour": machine.usd_per_hour,
        "offer": None if offer is None else f"{offer.provider}:{offer.instance}",
        "region": None if offer is None else offer.region,
        "as_of": None if offer is None else offer.as_of,
        "is_bound": machine.is_bound,
    }


def _model(guide: Guide, model: ModelGuide) -> dict[str, Any]:
    summary, options = model.summary, model.workload.options
    return {
        "model": model.name,
        "precision": options.precision,
        "optimizer": options.optimizer,
        "verdict": summary.verdict,
        "kinds": [_kind(guide, kind) for kind in summary.kinds],
        "fastest": _named(guide, summary.fastest),
        "cheapest": _named(guide, summary.cheapest),
        "best_value": _named(guide, summary.best_value),
        "picks": [
            {
                "batch": pick.batch,
                "fastest": _name(guide, pick.fastest),
                "cheapest": _name(guide, pick.cheapest),
                "best_value": _name(guide, pick.best_value),
            }
            for pick in summary.picks
        ],
        "cells": [_cell(guide, cell) for row in model.cells for cell in row],
    }


def _kind(guide: Guide, kind: Kind) -> dict[str, Any]:
    return {
        "device": kind.device,
        "limit": kind.limit,
        "cells": kind.cells,
        "of_cells": kind.of_cells,
        "pays": [
            {"machine": _name(guide, each.machine), "devices": each.devices, "from_batch": each.from_batch}
            for each in kind.pays
        ],
        "sentence": kind.sentence,
    }


def _name(guide: Guide, place: int | None) -> str | None:
    return None if place is None else guide.machines[place].name


def _named(guide: Guide, cell: Cell | None) -> dict[str, Any] | None:
    return None if cell is None else {"machine": _name(guide, cell.machine), "batch": cell.batch}


def _cell(guide: Guide, cell: Cell) -> dict[str, Any]:
    found: dict[str, Any] = {"machine": _name(guide, cell.machine), "batch": cell.batch}
    figures = cell.figures
    if figures is None:
        return {**found, "blank": cell.blank, "reason": cell.reason}
    run, epoch = figures.run, figures.epoch
    return {
        **found,
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
