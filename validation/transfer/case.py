"""One measurement of another source, and what foretrain, the roofline and a napkin say of it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from foretrain.answers import Infeasible
from foretrain.errors import ForetrainError
from foretrain.estimates import Quantiles
from foretrain.facts.devices import Device
from foretrain.facts.hardware import hardware
from foretrain.jobs.predict import JobPrediction
from foretrain.prediction.cost_models import CostModel
from foretrain.prediction.memory.lifetimes import MemoryUse as MemoryPart
from foretrain.prediction.operators.pricing import peak_flop_per_second
from foretrain.prediction.scenario import Scenario
from foretrain.prediction.spread import SpreadTraits
from foretrain.serving.requests import request_from
from foretrain.serving.requests.predicting import PredictRequest
from foretrain.serving.verbs import predicting
from foretrain.workloads.ops import Kind
from foretrain.workloads.readers import ModelSource

NAPKIN_SHARE, NAPKIN_CHECKPOINTED_SHARE = 0.40, 0.35
"""The napkin: 40 % of peak by 6 FLOP a parameter and token; 35 % of 8 with checkpointing."""
_DTYPES = {
    "fp32": "float32", "tf32": "tf32", "fp16": "float16", "bf16": "bfloat16", "fp8": "float8_e4m3fn",
}  # fmt: skip
LONG = 16_384
"""Sequences at least this long count as long."""


@dataclass(frozen=True)
class TransferCase:
    """One measurement and the request that predicts it.

    `settings` are keywords of `foretrain.predict`; `model` is given where no name of the command line stands
    for it. `seconds` and `memory_bytes` are as measured, `parts_held` names what the measured memory has of
    the context, communicators and the allocator's rest, `is_first_stage` that it is of the first stage of a
    pipeline (compared where that is the fullest). `parameters` are those a token passes, `tokens` those of a
    step of all devices: without them the napkin counts the FLOP of the graph. `sets` are the groups with a
    target.
    """

    source: str
    name: str
    settings: Mapping[str, Any]
    seconds: float | None = None
    memory_bytes: float | None = None
    sets: tuple[str, ...] = ()
    family: str = ""
    framework: str = "pytorch"
    parameters: float | None = None
    tokens: float | None = None
    model: ModelSource | None = None
    parts_held: frozenset[str] = field(default_factory=frozenset)
    is_first_stage: bool = False

    @property
    def device(self) -> Device:
        """The GPU it ran on."""
        return hardware(self.settings["on"]).device

    @property
    def devices(self) -> int:
        """How many GPUs it ran on."""
        return hardware(self.settings["on"]).devices

    @property
    def precision(self) -> str:
        """The precision it ran in."""
        return str(self.settings.get("precision", "fp32"))

    @property
    def is_forward(self) -> bool:
        """Whether it is a forward pass, not a training step."""
        return bool(self.settings.get("forward_only"))

    @property
    def is_compiled(self) -> bool:
        """Whether torch.compile ran it."""
        return bool(self.settings.get("compile"))

    @property
    def seq_len(self) -> int | None:
        """Tokens of a sample; None for images."""
        return self.settings.get("seq_len")

    def traits(self) -> dict[str, str]:
        """What the tables split by."""
        count, length = self.devices, self.seq_len
        lengths = (
            "" if length is None else "< 4k" if length < 4096 else "4k-16k" if length < LONG else ">= 16k"
        )
        mode = "forward" if self.is_forward else "training"
        return {
            "precision": self.precision,
            "GPU": self.device.id,
            "generation": self.device.generation,
            "family": self.family or "other",
            "GPUs": "1" if count == 1 else "2-8" if count <= 8 else "9-64" if count <= 64 else "65+",
            "length": "" if length is None else lengths,
            "mode": f"{mode}, compiled" if self.is_compiled else mode,
            "framework": self.framework,
        }  # fmt: skip


@dataclass(frozen=True)
class Judged:
    """What was predicted of a case. `product_seconds` of it are matrix products on tensor cores; `refusal`
    says why there is no answer."""

    case: TransferCase
    seconds: Quantiles | None = None
    roofline_seconds: float | None = None
    napkin_seconds: float | None = None
    memory: Quantiles | None = None
    product_seconds: float = 0.0
    traits: SpreadTraits | None = None
    refusal: str = ""

    @property
    def error(self) -> float:
        """Signed error of the time, as a share of the measured."""
        assert self.seconds is not None and self.case.seconds
        return self.seconds.p50 / self.case.seconds - 1

    @property
    def is_inside(self) -> bool:
        """Whether the measured time is in the 80 % interval."""
        assert self.seconds is not None and self.case.seconds
        return self.seconds.p10 <= self.case.seconds <= self.seconds.p90

    @property
    def memory_error(self) -> float:
        """Signed error of the memory, as a share of the measured."""
        assert self.memory is not None and self.case.memory_bytes
        return self.memory.p50 / self.case.memory_bytes - 1

    @property
    def is_memory_inside(self) -> bool:
        """Whether the measured memory is in the 80 % interval."""
        assert self.memory is not None and self.case.memory_bytes
        return self.memory.p10 <= self.case.memory_bytes <= self.memory.p90


def judge(case: TransferCase, with_roofline: bool = True) -> Judged:
    """Predict a case as a user would ask for it."""
    try:
        answer = ask(case)
        if isinstance(answer, Infeasible):
            return Judged(case, refusal=str(answer))
        bound = ask(case, cost_model="roofline") if with_roofline and case.seconds else None
    except ForetrainError as error:
        return Judged(case, refusal=str(error))
    return Judged(
        case,
        seconds=answer.step.seconds,
        roofline_seconds=bound.step.seconds.p50 if isinstance(bound, JobPrediction) else None,
        napkin_seconds=napkin_seconds(case, answer),
        memory=_held(case, answer),
        product_seconds=_product_seconds(case, answer),
        traits=_traits(case, answer),
    )


def _traits(case: TransferCase, answer: JobPrediction) -> SpreadTraits:
    """What the spread of the step depends on, as the prediction had it."""
    step = answer.step
    return SpreadTraits(
        answer.knowledge_class,
        case.precision,
        case.devices,
        case.seq_len or 0,
        case.is_compiled,
        case.is_forward,
        min(1.0, step.waiting_for_launches_seconds / step.seconds.p50),
    )


def _product_seconds(case: TransferCase, answer: JobPrediction) -> float:
    """Seconds of the step in matrix products on tensor cores."""
    if case.precision == "fp32":
        return 0.0
    kinds = tuple(f" {kind}" for kind in (Kind.LINEAR, Kind.MATMUL))
    return math.fsum(part.seconds for part in answer.step.parts if part.name.endswith(kinds))


def ask(case: TransferCase, **more: Any) -> JobPrediction | Infeasible:
    """The answer of `foretrain.predict`, without advice; rows that repeat a request share its answer."""
    return _answer(json.dumps(_asked(case, more)), case.model)


def _asked(case: TransferCase, more: Mapping[str, Any]) -> dict[str, Any]:
    model = {} if case.model is None else {"model": case.model.name}
    return {**case.settings, "advice": False, **more, **model}


def scenario_of(case: TransferCase, cost_model: CostModel) -> Scenario:
    """What `ask` asks for, with a cost model of its own."""
    request = request_from(PredictRequest, json.loads(json.dumps(_asked(case, {}))))
    return replace(predicting.scenario(request, source=case.model), cost_model=cost_model)


@lru_cache(maxsize=64)
def _answer(asked: str, source: ModelSource | None) -> JobPrediction | Infeasible:
    return predicting.predict(request_from(PredictRequest, json.loads(asked)), source=source)


def napkin_seconds(case: TransferCase, answer: JobPrediction) -> float:
    """The time by a fixed share of the peak of the precision used.

    Language models count 6 FLOP a parameter and token (8 with checkpointing), others the FLOP of their graph.
    """
    peak = peak_flop_per_second(case.device, _DTYPES[case.precision], matrix=True) * case.devices
    checkpointed = bool(case.settings.get("checkpoint_activations"))
    if case.parameters and case.tokens:
        flop = (2.0 if case.is_forward else 8.0 if checkpointed else 6.0) * case.parameters * case.tokens
    else:
        flop = answer.throughput.mfu * peak * answer.step.seconds.p50 * (4 / 3 if checkpointed else 1.0)
    return flop / (peak * (NAPKIN_CHECKPOINTED_SHARE if checkpointed else NAPKIN_SHARE))


def _held(case: TransferCase, answer: JobPrediction) -> Quantiles | None:
    """Memory of the fullest device without what the source did not count."""
    if case.is_first_stage and answer.parallelism.fullest_stage:
        return None
    outside = (MemoryPart.CONTEXT, MemoryPart.COMMUNICATORS, MemoryPart.FRAGMENTATION)
    uncounted = set(map(str, outside)) - case.parts_held
    less = sum(part.bytes for part in answer.memory.parts if part.name in uncounted)
    held = answer.memory.bytes
    return Quantiles(*(max(0.0, each - less) for each in (held.p10, held.p50, held.p90)))
