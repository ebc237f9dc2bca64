"""How well a step is known, and how far a measurement of another source may lie from its prediction.

Errors of operators, exchanges and hosts do not explain how far predictions are off on a cluster, framework or
driver without measurements: whole sources differ. `calibrations/spread.json` describes that, fitted by
`calibration/steps/spread.py` to predictions of sources no row of which was in a fit:

    ln(measured / predicted) in [-σ · below, σ · above] in 80 % of cases,    ln σ = Σ_i weight_i · feature_i

with features of the step: how well the GPU is known, precision, devices, length, options, share of the step
in which the GPU waits for launches. No feature narrows an interval: all weights but the constant's are at
least 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache

from foretrain.estimates import Estimate
from foretrain.facts.calibrations import load_calibration, shipped_calibration
from foretrain.facts.devices import Device, devices
from foretrain.prediction.cost_models import PricedStep
from foretrain.prediction.operators import matrix, mixed_precision
from foretrain.prediction.operators.matrix import unit_of
from foretrain.prediction.operators.pricing import Knowledge
from foretrain.workloads.graph import Graph

FILE = "spread.json"
LONG = 16_384
"""Tokens from which a sequence counts as long."""
_DTYPES = {"tf32": "tf32", "fp16": "float16", "bf16": "bfloat16", "fp8": "float8_e4m3fn"}
_LARGEST_LOG = 3.0
"""No interval is wider than a factor of 20 to either side."""


class KnowledgeClass(StrEnum):
    """What of a device was measured for the shipped calibrations, best first; MEASURED is the user's own."""

    MEASURED = "measured"
    DEVICE_AND_PRECISION = "device-and-precision"
    DEVICE = "device"
    GENERATION = "generation"
    DATA_SHEET = "data-sheet"

    @property
    def sentence(self) -> str:
        """For people."""
        return _SENTENCES[self]


_SENTENCES = {
    KnowledgeClass.MEASURED: "from your own runs",
    KnowledgeClass.DEVICE_AND_PRECISION: "this GPU and precision were measured",
    KnowledgeClass.DEVICE: "this GPU was measured, in another precision",
    KnowledgeClass.GENERATION: "other GPUs of its generation were measured",
    KnowledgeClass.DATA_SHEET: "known by its data sheet only",
}


def knowledge_class(device: Device, precision: str) -> KnowledgeClass:
    """What the shipped calibrations know of a device in a precision.

    Matrix products were measured on it, or whole steps in half precision (`mixed_precision`).
    """
    unit = unit_of(_DTYPES.get(precision, "float32"))
    return _class_of(device.id, device.family, device.vendor, device.generation, unit)


@cache
def _class_of(device_id: str, family: str, vendor: str, generation: str, unit: str) -> KnowledgeClass:
    measured = {name: set(each.shares) for name, each in matrix.calibration().units.items()}
    measured["tensor"] |= mixed_precision.calibration().devices
    if device_id in measured.get(unit, ()):
        return KnowledgeClass.DEVICE_AND_PRECISION
    known = [devices()[name] for each in measured.values() for name in sorted(each) if name in devices()]
    if any(other.family == family for other in known):
        return KnowledgeClass.DEVICE
    same = ((other.vendor, other.generation) == (vendor, generation) for other in known)
    return KnowledgeClass.GENERATION if any(same) else KnowledgeClass.DATA_SHEET


@dataclass(frozen=True, slots=True)
class SpreadTraits:
    """What the spread of a step depends on. `launch_share` is the share the GPU waits for launches."""

    known: KnowledgeClass
    precision: str
    devices: int = 1
    seq_len: int = 0
    is_compiled: bool = False
    is_forward: bool = False
    launch_share: float = 0.0

    def features(self) -> dict[str, float]:
        """The features of ln σ; `constant` is the first."""
        rank = list(KnowledgeClass).index(self.known)
        return {
            "constant": 1.0,
            "precision not measured": float(rank >= 2),
            "device not measured": float(rank >= 3),
            "generation not measured": float(rank >= 4),
            "several devices": float(self.devices > 1),
            "doublings beyond 8 devices": max(0.0, math.log2(self.devices) - 3),
            "tf32": float(self.precision == "tf32"),
            "fp8": float(self.precision == "fp8"),
            "long sequences": float(self.seq_len >= LONG),
            "compiled": float(self.is_compiled),
            "forward only": float(self.is_forward),
            "waiting for launches": self.launch_share,
        }


def traits_of(
    graph: Graph, step: PricedStep, device: Device, count: int = 1, launch_share: float = 0.0
) -> SpreadTraits:
    """The traits of a step of `graph`, one micro-batch of the whole model, on `count` devices."""
    precision = graph.options.precision
    known = knowledge_class(device, precision)
    if step.knowledge is Knowledge.MEASURED:
        known = KnowledgeClass.MEASURED
    elif not step.is_shipped and step.knowledge is Knowledge.EXTRAPOLATED:  # the roofline, say
        known = KnowledgeClass.DATA_SHEET
    return SpreadTraits(
        known,
        precision,
        count,
        graph.tokens // graph.batch if graph.batch else 0,
        graph.options.compile,
        graph.options.forward_only,
        min(1.0, max(0.0, launch_share)),
    )


def with_spread(estimate: Estimate, step: PricedStep, traits: SpreadTraits, device: Device) -> Estimate:
    """An estimate at least as uncertain as sources differ; the user's own timings of it narrow that.

    Only steps that the shipped models of GPUs price were judged on other sources.
    """
    spread, evidence = shipped_spread(), step.evidence
    if spread is None or not device.is_gpu or not step.is_shipped:
        return estimate
    if evidence is None:
        return spread.apply(estimate, traits)
    is_known = evidence.spread is not None or evidence.knowledge is not None
    return estimate if is_known else spread.apply(estimate, traits, evidence.narrowing)


@dataclass(frozen=True)
class Spread:
    """The fitted spread. `below` and `above` are distances of p10 and p90 in units of σ.

    `surprise` is the probability, by class of knowledge, that a step is off beyond any quantile stated here;
    `within` that it takes no longer than predicted.
    """

    weights: Mapping[str, float]
    below: float
    above: float
    surprise: Mapping[str, float]
    within: float = 0.5

    def logs(self, traits: SpreadTraits) -> tuple[float, float]:
        """Distances of p10 and p90 from the median, in logarithms of the time."""
        sigma = math.exp(math.fsum(self.weights.get(k, 0.0) * v for k, v in traits.features().items()))
        return min(self.below * sigma, _LARGEST_LOG), min(self.above * sigma, _LARGEST_LOG)

    def apply(self, estimate: Estimate, traits: SpreadTraits, narrowing: float = 1.0) -> Estimate:
        """An estimate at least as uncertain as sources differ; the user's timings narrow that."""
        # Logarithms of the time become shares of the median, which is what an estimate deviates by.
        below, above = (narrowing * each for each in self.logs(traits))
        return estimate.at_least(1 - math.exp(-below), math.exp(above) - 1)


@cache
def shipped_spread() -> Spread | None:
    """The spread of `calibrations/spread.json`; None where it was not fitted."""
    return load_calibration(Spread, FILE) if shipped_calibration(FILE).is_file() else None


def surprise(known: KnowledgeClass) -> float:
    """The probability that a step is off beyond any stated quantile, for probabilities of plans."""
    spread = shipped_spread()
    return 0.0 if spread is None else float(spread.surprise.get(known.value, 0.0))


def probability_within_prediction(known: KnowledgeClass) -> float:
    """The probability that a step takes no longer than predicted; one half for the user's own runs."""
    spread = shipped_spread()
    return 0.5 if spread is None or known is KnowledgeClass.MEASURED else spread.within
