"""ZeRO divides state over every device that holds the same parameters, whatever axis it belongs to."""

from __future__ import annotations

from pathlib import Path

import pytest

from foretrain.facts.hardware import cluster
from foretrain.prediction.answer import Prediction
from foretrain.prediction.options import Parallelism
from foretrain.prediction.predict import predict
from foretrain.prediction.scenario import Scenario
from foretrain.workloads.options import WorkloadRequest
from foretrain.workloads.workload import workload_of

MIXTRAL = Path(__file__).parents[2] / "golden" / "inputs" / "mixtral.json"


def predicted(model: str, on: str, strategy: str) -> Prediction:
    workload = workload_of(WorkloadRequest(model, batch=2, seq_len=64, precision="bf16"))
    answer = predict(Scenario(workload, cluster(on), Parallelism(strategy=strategy), advice=False))
    assert isinstance(answer, Prediction)
    return answer


def bytes_of(prediction: Prediction, part: str) -> float:
    return sum(each.bytes for each in prediction.memory.parts if each.name == part)


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_context_ranks_share_state(stage: int) -> None:
    """cp=2,dp=4 has eight devices with the same parameters, as dp=8 has."""
    split = predicted("gpt2", "h100-sxm:8", f"cp=2,dp=4,zero={stage}")
    plain = predicted("gpt2", "h100-sxm:8", f"dp=8,zero={stage}")
    assert bytes_of(split, "optimizer state") == pytest.approx(bytes_of(plain, "optimizer state"))


def test_context_ranks_exchange_shards() -> None:
    split = predicted("gpt2", "h100-sxm:8", "cp=2,dp=4,zero=3")
    gathers = [
        each for each in split.parallelism.exchanges if each.verb == "all-gather" and each.members == 8
    ]
    assert gathers


def test_expert_ranks_share_what_is_no_expert() -> None:
    """With ep=2,dp=4 experts are divided over 2 x 2 shards, everything else over 4 shards."""
    experts = predicted(f"hf:{MIXTRAL}", "h100-sxm:4", "dp=4,ep=2,zero=1")
    plain = predicted(f"hf:{MIXTRAL}", "h100-sxm:4", "dp=4,zero=1")
    assert bytes_of(experts, "optimizer state") == pytest.approx(bytes_of(plain, "optimizer state"), rel=0.02)
