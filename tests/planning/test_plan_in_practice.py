"""Plans of jobs that people get wrong, or that are odd: options, offers, models that want two samples."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from tests.support.planned import EPOCHS, FEW, planned, request

from foretrain.answers import Infeasible
from foretrain.errors import InvalidRequest
from foretrain.jobs.batch_limits import smallest_batch
from foretrain.jobs.options import BatchLimits, JobOptions, LengthOptions
from foretrain.planning.machines import MachinesRequest
from foretrain.planning.options import OwningOptions
from foretrain.planning.plan import PlanProblem, plan
from foretrain.workloads.options import WorkloadRequest
from foretrain.workloads.workload import Workload, graph_at, workload_of

POOLED = """
import torch
from torch import nn

def pooled():
    layers = nn.Conv2d(3, 8, 3), nn.AdaptiveAvgPool2d(1), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(8, 2)
    return nn.Sequential(*layers), (torch.zeros(4, 3, 16, 16),)
"""


@pytest.fixture
def pooled(tmp_path: Path) -> Workload:
    """Batch normalisation after pooling all pixels: PyTorch refuses to train it on one sample."""
    file = tmp_path / "pooled.py"
    file.write_text(POOLED)
    return workload_of(WorkloadRequest(f"{file}:pooled"))


def test_a_model_that_cannot_train_on_one_sample_is_planned_with_more(pooled: Workload) -> None:
    assert smallest_batch(partial(graph_at, pooled)) == 2
    for batches in (BatchLimits(), BatchLimits(batch=32), BatchLimits(global_batch=12)):
        found = planned(PlanProblem(pooled, EPOCHS, machines=FEW, batches=batches))
        assert all(each.configuration.batch // each.configuration.micro_batches >= 2 for each in found.plans)


def test_a_model_that_cannot_train_at_all_says_why(tmp_path: Path) -> None:
    file = tmp_path / "broken.py"
    file.write_text(POOLED.replace("nn.Linear(8, 2)", "nn.Linear(9, 2)"))
    with pytest.raises(InvalidRequest, match="the model failed in layer"):
        smallest_batch(partial(graph_at, workload_of(WorkloadRequest(f"{file}:pooled"))))


def test_a_batch_in_micro_batches_is_what_predict_takes_it_for() -> None:
    found = planned(request(batches=BatchLimits(batch=64, micro_batches=4)))
    for each in found.plans:
        assert (each.configuration.batch, each.configuration.micro_batches) == (64, 4)
        assert each.configuration.global_batch == 64 * each.devices


def test_given_micro_batches_are_kept_rather_than_searching_layouts() -> None:
    batches = BatchLimits(global_batch=7, micro_batches=7)
    machines = MachinesRequest(gpu=("t4",), cloud=("aws",), max_gpus=4)
    found = planned(request(machines=machines, batches=batches))
    assert {(each.devices, each.configuration.micro_batches) for each in found.plans} == {(1, 7)}
    four = MachinesRequest(gpu=("v100-sxm2-16gb",), cloud=("aws",), region=("us-east-1",), max_gpus=4)
    uneven = request(machines=four, batches=BatchLimits(global_batch=9, micro_batches=3))
    assert not uneven.may_search_layouts


def test_a_batch_is_no_larger_than_an_epoch() -> None:
    found = planned(request(length=LengthOptions(epochs=100, samples=100)))
    assert max(each.configuration.global_batch for each in found.plans) <= 100
    assert any("global batches up to 100 are compared" in note for note in found.notes)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            JobOptions(interruptions_per_day=-1),
            "`interruptions_per_day` must be finite and at least 0, got -1",
        ),
        (JobOptions(interruptions_per_day=float("nan")), "got nan"),
        (JobOptions(checkpoint_every=0), "checkpoints must be more than 0 s of work apart, got 0 s"),
    ],
)
def test_what_makes_sense_on_no_machine_is_refused_and_not_called_infeasible(
    options: JobOptions, sentence: str
) -> None:
    with pytest.raises(InvalidRequest, match=sentence):
        request(options=options)


def test_no_matching_offer_is_infeasible() -> None:
    answer = plan(request(machines=MachinesRequest(gpu=("rtx4090",), cloud=("lambda",))))
    assert isinstance(answer, Infeasible)
    sentence = str(answer)
    assert sentence.startswith(
        "infeasible: mnist-cnn needs machines to rent, but there is no current offer of rtx4090 by lambda; "
    )
    assert "without `cloud`: runpod, vast" in sentence and "without `gpu`: a100, h100" in sentence
    spot = plan(request(machines=MachinesRequest(cloud=("runpod",)), options=JobOptions(spot=True)))
    assert isinstance(spot, Infeasible)
    assert "no current offer by runpod with a spot price" in str(spot)


def test_one_gpu_that_is_to_shard_is_not_called_too_small() -> None:
    one = MachinesRequest(gpu=("t4",), cloud=("aws",), max_gpus=1)
    answer = plan(request(machines=one, strategies=("zero3",)))
    assert isinstance(answer, Infeasible)
    assert "one GPU has no state to shard" in answer.available
    assert "does not fit" not in str(answer) and "GiB" not in str(answer)


def test_reasons_and_refusals_read_well() -> None:
    found = planned(request(machines=MachinesRequest(gpu=("t4",), cloud=("aws",), max_gpus=1)))
    assert any(each.reason == "more than 1 GPU" for each in found.excluded)
    with pytest.raises(InvalidRequest, match="`buy_price` must be above 0, got 0"):
        OwningOptions(jobs_per_year=10, buy_price=0)
