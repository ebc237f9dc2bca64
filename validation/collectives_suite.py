"""NCCL collectives inside one node, each device type left out: aiconfigurator, vTrain, DeepBench.

Two GPU types of one link technology (NVLink, PCI Express) share all parameters; the predicted type adds only
what is published of it: nominal rate, the rate NCCL plans with, clock, how its links are laid out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from calibration.collectives.fit import LARGE_BYTES, Block, blocks, predicted
from calibration.collectives.links import corpus, exponents, left_out

from calibration.datasets import aiconfigurator, sia
from foretrain.estimates import Quantiles
from foretrain.facts.links import link
from foretrain.prediction.collectives.costs import Verb
from foretrain.prediction.collectives.network import (
    HOST_BRIDGE,
    CollectiveCalibration,
    Tier,
    calibration,
    network_of,
    unseen_spread,
)
from foretrain.prediction.operators.pricing import Floats
from validation.report import Case, Metrics, SuiteReport, metrics
from validation.splitting import by_group, intervals, worst

HERE, SEEN = "foretrain", "foretrain, device type in the fit"
NOMINAL, PLANNED = "ring at the nominal rate", "ring at the rate NCCL plans with"
_PLANS = "nccl-tuning-model"
_NOTES = (
    "The port of NCCL's own tuning model in PyTorch errs 6-17 % on all-reduce, 8-25 % on all-gather and "
    "reduce-scatter, 25-80 % on all-to-all (H100, one node, published figures).",
    "Messages are in half precision, one vote for each version of NCCL. Whole numbers, which a switch cannot "
    "sum, are a set of their own.",
    "The form of the equations was chosen among about twenty with these figures in view, so they flatter it "
    "a little; the constants of a device type left out never saw it.",
    "The L40S machine has eight GPUs under host bridges without peer access: a pair gets 20 GB/s, eight "
    "get 1.4 GB/s each. Sharing this poor (exponent 2, where a shared bus has 1) cannot be inferred from "
    "other machines; once the machine is measured the error is 11 %. The interval is the one that "
    "foretrain gives for an unmeasured bridge, from Sia's two machines.",
)


@dataclass(frozen=True)
class _PredictedBlock:
    """A block and the times that each method predicts for it."""

    block: Block
    kind: str
    seconds: Mapping[str, Floats]


def run(data: Path) -> SuiteReport:
    """Leave each device type out and predict its collectives."""
    machines = exponents(sia.read_waiting(data))
    predictions: list[_PredictedBlock] = []
    unseen: dict[str, CollectiveCalibration] = {}
    for kind, part in corpus(data).items():
        unseen |= left_out(part, kind, machines)
        predictions += [_predicted_block(block, kind, unseen[block.device_id]) for block in part]
    integers = blocks(aiconfigurator.read_collectives(data, "int8"))
    whole = [_predicted_block(block, _kind(block), unseen[block.device_id]) for block in integers]
    cases, others = _cases(predictions, machines), _cases(whole)
    by_set = {**_sets(cases), "whole numbers, at least 1 MiB": _metrics(_large(others))}
    notes = (*_NOTES, f"Worst of at least 1 MiB: {worst(_large(cases), HERE, _why)}.")
    return SuiteReport("collectives", tuple(cases), by_set, notes=notes)


def _sets(cases: Sequence[Case]) -> dict[str, dict[str, Metrics]]:
    large = _large(cases)
    small = [case for case in cases if _bytes(case) < LARGE_BYTES]
    over_nvlink = [case for case in large if not case.group.startswith(("l40s", "gtx", "titan"))]
    by_set: dict[str, dict[str, Metrics]] = {}
    for verb in (Verb.ALL_REDUCE, Verb.ALL_GATHER, Verb.REDUCE_SCATTER, Verb.ALL_TO_ALL):
        by_set[f"{verb}, at least 1 MiB"] = _metrics(_of(large, verb))
        by_set[f"{verb}, at least 1 MiB, NVLink"] = _metrics(_of(over_nvlink, verb))
        by_set[f"{verb}, below 1 MiB"] = _metrics(_of(small, verb))
    for name, group in by_group(large).items():
        by_set[f"{name} left out, at least 1 MiB"] = _metrics(group)
    return by_set


def _predicted_block(block: Block, kind: str, unseen: CollectiveCalibration) -> _PredictedBlock:
    tier = _tier(block)
    return _PredictedBlock(
        block,
        kind,
        {
            HERE: predicted(block, unseen),
            SEEN: predicted(block, calibration()),
            NOMINAL: _ring(block, tier, link(tier.link).nominal_bytes_per_second_per_direction),
            PLANNED: _ring(block, tier, link(tier.link).planned_bytes_per_second_per_direction),
        },
    )


def _ring(block: Block, tier: Tier, rate: float) -> Floats:
    """startup + steps·α + 2(p-1)/p · n/B, with the α that NCCL plans with."""
    facts = {fact.quantity: fact.value for fact in link(tier.link).sheet if fact.source == _PLANS}
    alpha, startup = float(facts["latency_seconds"]), float(facts["collective_startup_seconds"])
    rounds = 2 if block.verb is Verb.ALL_REDUCE else 1
    links = tier.rings[block.devices - 1] if tier.rings else 1.0
    steps = rounds * (block.devices - 1)
    return startup + steps * alpha + steps / block.devices * block.bytes / (rate * links)


def _tier(block: Block) -> Tier:
    tier = network_of(block.machine).intra
    assert tier is not None
    return tier


def _kind(block: Block) -> str:
    return _tier(block).kind.behaviour


def _cases(blocks: Sequence[_PredictedBlock], machines: Mapping[str, float] | None = None) -> list[Case]:
    """One case per measurement, with an interval where the exponents of other host bridges are given."""
    sizes = np.concatenate([item.block.bytes for item in blocks])
    measured = np.concatenate([item.block.seconds for item in blocks])
    methods = {name: np.concatenate([item.seconds[name] for item in blocks]) for name in blocks[0].seconds}
    owners = [item for item in blocks for _ in item.block.bytes]
    groups = [item.block.device_id for item in owners]
    kinds = [f"{item.kind} {size >= LARGE_BYTES}" for item, size in zip(owners, sizes, strict=True)]
    bounds: list[Quantiles | None] = [None] * len(groups)
    if machines is not None:
        bridge = unseen_spread(machines)
        bounds = [
            _around(float(value), bridge) if item.block.topology == HOST_BRIDGE else usual
            for usual, item, value in zip(
                intervals(groups, measured, methods[HERE], kinds), owners, methods[HERE], strict=True
            )
        ]
    return [
        Case(
            f"{item.block.verb} {sizes[index]:.0f} bytes on {item.block.devices} x {groups[index]}",
            groups[index],
            float(measured[index]),
            {name: float(values[index]) for name, values in methods.items()},
            bounds[index],
        )
        for index, item in enumerate(owners)
    ]


def _around(value: float, spread: Mapping[str, float]) -> Quantiles:
    return Quantiles(value * min(1.0, spread["p10"]), value, value * max(1.0, spread["p90"]))


def _bytes(case: Case) -> float:
    return float(case.name.split()[1])


def _large(cases: Sequence[Case]) -> list[Case]:
    return [case for case in cases if _bytes(case) >= LARGE_BYTES]


def _of(cases: Sequence[Case], verb: Verb) -> list[Case]:
    return [case for case in cases if case.name.startswith(f"{verb} ")]


def _metrics(cases: Sequence[Case]) -> dict[str, Metrics]:
    return {name: metrics(cases, name, name == HERE) for name in (HERE, SEEN, NOMINAL, PLANNED)}


def _why(case: Case) -> str:
    if case.group == "l40s":
        return "a host bridge that shares worse than any other measured"
    if case.group == "h200-sxm":
        return "its links reach more of their rate than the others', and its steps are a quarter quicker"
    return "a protocol chosen late"
