"""What ranks plans is what `predict` evaluates, for random models, machines, strategies and batches.

No plan is dropped on an estimate: what does not fit by the search does not fit by the prediction either.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from tests.support.planned import workload
from tests.support.scenarios import context_on

from foretrain.facts.hardware import hardware
from foretrain.jobs.configurations import candidates, configuration_space
from foretrain.jobs.length import length_of
from foretrain.jobs.options import BatchLimits, LengthOptions
from foretrain.prediction.cost_models import OperatorCostModel
from foretrain.prediction.options import InputOptions
from foretrain.prediction.scenario import StepConfiguration, evaluate
from foretrain.prediction.strategies.strategy import layout_of, plan_words
from foretrain.workloads.workload import Workload

SMALL = ("resnet18", "bert-base", "gpt2")
MODELS = (
    *SMALL,
    *("resnet50", "vit-b-16", "bert-large", "gpt2-medium", "t5-large", "gpt2-xl", "llama3.2-1b"),
    *("llama3.2-3b", "gpt3-6.7b", "llama2-7b", "llama3-8b", "llama2-13b", "gpt3-13b", "llama2-70b"),
    "llama3-70b",
)
MACHINES = (
    *("t4:4", "l4:2", "v100-sxm2-16gb:8", "rtx3090:8", "rtx4090:4", "a100-sxm-40gb:8", "a100-sxm-80gb:8"),
    *("h100-sxm:8", "aws:p4d.24xlarge:4", "aws:p4d.24xlarge:16", "aws:p5.48xlarge:2", "aws:p5.48xlarge:8"),
    *("aws:p5.48xlarge:64", "aws:p5en.48xlarge:16"),
)
WITHOUT_BF16 = ("t4", "v100")


@dataclass(frozen=True)
class Drawn:
    """A case: a workload on machines in one configuration."""

    model: str
    machines: str
    strategy: str
    batch: int
    micro_batches: int
    precision: str
    recomputed: bool

    @property
    def workload(self) -> Workload:
        plain = workload(self.model)
        options = replace(plain.options, precision=self.precision, checkpoint_activations=self.recomputed)
        return replace(plain, options=options)


def drawn(count: int, models: tuple[str, ...], seed: int) -> Iterator[Drawn]:
    """Random cases; smaller models take larger batches."""
    choice = random.Random(seed)
    for _ in range(count):
        model = choice.choice(models)
        machines = choice.choice(MACHINES)
        half = "fp16" if machines.startswith(WITHOUT_BF16) else "bf16"
        most = 3 if models.index(model) >= len(SMALL) and "b" in model[-1:] else 7
        yield Drawn(
            model=model,
            machines=machines,
            strategy=choice.choice(plan_words()),
            batch=1 << choice.randrange(most),
            micro_batches=choice.choice((1, 1, 2, 8)),
            precision=choice.choice((half, "fp16", "fp32")),
            recomputed=choice.random() < 0.5,
        )


def ratios(case: Drawn) -> tuple[float, float] | None:
    """Time and memory by which a case is ranked, over those predicted; None if it does not fit."""
    on, length = hardware(case.machines), length_of(LengthOptions(steps=10))
    assert length is not None
    limits = BatchLimits(batch=case.batch * case.micro_batches, micro_batches=case.micro_batches)
    space = configuration_space(
        case.workload, (on,), length, limits, (case.strategy,), OperatorCostModel(), InputOptions()
    )
    found = candidates(space.on(on.device), on).fitting
    configuration = StepConfiguration(
        layout_of(case.strategy, on.devices, on.devices_per_node),
        case.batch * case.micro_batches,
        case.micro_batches,
    )
    expected = evaluate(context_on(case.workload, on), configuration)
    fits = expected.memory.fits
    assert bool(found) == fits, f"{case}: predict says {'it fits' if fits else 'it does not fit'}"
    if not found:
        return None
    (ranked,) = found
    return ranked.seconds / expected.seconds, ranked.memory_bytes / expected.memory.bytes


def check(cases: Iterator[Drawn]) -> int:
    """Compare cases; the number of those that fit."""
    compared = [pair for pair in map(ratios, cases) if pair is not None]
    time, memory = np.abs(np.log(np.array(compared))).T
    assert time.max() < 1e-6, "times are predictions"
    assert np.quantile(memory, 0.9) < np.log(1.1), "memory is estimated where it is far below the capacity"
    return len(compared)


def test_a_few_small_models() -> None:
    assert check(drawn(6, SMALL, seed=5)) >= 3


def test_three_hundred_cases_of_all_sizes() -> None:
    assert check(drawn(300, MODELS, seed=24)) >= 100
