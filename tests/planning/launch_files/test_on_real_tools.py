"""Launch files run by the real tools: torchrun, Slurm of two nodes and Ray of two nodes start real processes.

The processes meet with gloo, sum their ranks and write down what they saw; with `examples/train_plan.py` they
train what was planned. SkyPilot and Kubernetes need machines, so their files are only read, in
`test_launch_files`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.support.planned import planned

from foretrain.jobs.options import BatchLimits, LengthOptions
from foretrain.measuring.distributed_trials.namespaces import why_not
from foretrain.planning.frontier import Frontier
from foretrain.planning.launch_files import launch_file, launch_plan
from foretrain.planning.launch_files._base import LaunchPlan, environment
from foretrain.planning.machines import MachinesRequest
from foretrain.planning.plan import PlanProblem
from foretrain.prediction.strategies.strategy import layout_of
from foretrain.workloads.options import WorkloadRequest
from foretrain.workloads.readers.python_file import load_module
from foretrain.workloads.workload import workload_of

ROOT = Path(__file__).parents[3]
ARGUMENTS = ("--note", 'it\'s "50 %" $HOME')
NAMESPACES = pytest.mark.skipif(why_not() is not None, reason=f"no namespaces here: {why_not()}")
SCRIPT = """\
import json, os, sys
from pathlib import Path
import torch
from torch import distributed
distributed.init_process_group("gloo")
rank = distributed.get_rank()
total = torch.tensor([rank + 1.0])
distributed.all_reduce(total)
seen = {"arguments": sys.argv[1:], "environment": dict(os.environ), "total": total.item()}
Path(f"rank{rank}.json").write_text(json.dumps(seen))
distributed.destroy_process_group()
"""
WAIT = """\
job=$(sbatch --parsable "$1")
for _ in $(seq 400); do
  state=$(scontrol show job "$job" | sed -n 's/.*JobState=\\([A-Z_]*\\).*/\\1/p')
  case $state in PENDING | RUNNING | COMPLETING) sleep 0.1 ;; *) break ;; esac
done
cat ./*.log
[ "$state" = COMPLETED ]
"""
CLUSTER = """\
import os, subprocess, sys
os.environ["RAY_worker_niceness"] = "0"  # else its workers wait for all the other tests
from ray.cluster_utils import Cluster
machine = {"num_cpus": 1, "num_gpus": 1, "include_dashboard": False}
cluster = Cluster(initialize_head=True, head_node_args=machine)
cluster.add_node(**machine)
environment = {**os.environ, "RAY_ADDRESS": cluster.address}
code = subprocess.run([sys.executable, sys.argv[1]], env=environment, cwd=sys.argv[2]).returncode
cluster.shutdown()
sys.exit(code)
"""
CLOSED_OFF = """\
ip link set lo up
if [ -e /etc/resolv.conf ]; then mount --bind "$1" /etc/resolv.conf; fi
mkdir -p /tmp/ray
mount -t tmpfs none /tmp/ray
shift
exec "$@"
"""
"""Nothing listens to anyone else, nothing is left behind, and no name server is waited for."""


def a_plan(nodes: int, per_node: int) -> LaunchPlan:
    layout = layout_of("ddp", nodes * per_node, per_node)
    return LaunchPlan("tiny", "A100", nodes, per_node, layout, 64, "bf16", arguments=ARGUMENTS)


def written(target: str, plan: LaunchPlan, folder: Path) -> Path:
    """The launch file and the script it starts, in a folder of their own."""
    folder.mkdir()
    (folder / plan.script).write_text(SCRIPT)
    file = launch_file(target, plan)
    (folder / file.file_name).write_text(file.text)
    return folder / file.file_name


def run(*command: str | Path, folder: Path) -> None:
    """With torchrun on the path, and processes that look no name up to meet."""
    search = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": search, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    evaluation = subprocess.run(
        [str(part) for part in command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert evaluation.returncode == 0, evaluation.stdout + evaluation.stderr


def check(plan: LaunchPlan, folder: Path) -> list[dict[str, Any]]:
    """Every process ran once, with the plan's environment and arguments, and all of them met."""
    found = {file.name: json.loads(file.read_text()) for file in folder.glob("rank*.json")}
    assert sorted(found) == sorted(f"rank{rank}.json" for rank in range(plan.devices))
    expected = {variable.name: variable.value for variable in environment(plan)}
    for seen in found.values():
        assert seen["total"] == plan.devices * (plan.devices + 1) / 2
        assert seen["arguments"] == list(ARGUMENTS)
        assert expected.items() <= seen["environment"].items()
    return [found[f"rank{rank}.json"]["environment"] for rank in range(plan.devices)]


def test_torchrun_runs_its_file(tmp_path: Path) -> None:
    plan, folder = a_plan(1, 2), tmp_path / "job"
    run("bash", written("torchrun", plan, folder), folder=folder)
    check(plan, folder)


@cache
def a_frontier() -> Frontier:
    """Two GPUs of one machine for a model that a CPU trains in a second: 16 samples a step, 3 steps."""
    return planned(
        PlanProblem(
            workload_of(WorkloadRequest("bert-tiny", seq_len=16, precision="bf16")),
            LengthOptions(steps=3),
            machines=MachinesRequest(gpu=("a6000",), cloud=("lambda",), max_gpus=2),
            batches=BatchLimits(global_batch=16),
        )
    )


def planned_as(strategy: str, micro_batches: int, **asked: Any) -> LaunchPlan:
    """The plan of two GPUs in another configuration, as `plan --emit` launches it."""
    frontier = a_frontier()
    index = next(place for place, each in enumerate(frontier.plans) if each.devices == 2)
    plan = frontier.plans[index]
    workload = workload_of(WorkloadRequest("bert-tiny", seq_len=16, **asked))
    configuration = replace(
        plan.configuration,
        strategy=strategy,
        micro_batches=micro_batches,
        precision=workload.options.precision,
        checkpoint_activations=workload.options.checkpoint_activations,
    )
    plans = list(frontier.plans)
    plans[index] = replace(plan, configuration=configuration)
    shown = replace(frontier, workload=workload, plans=tuple(plans), reported=index)
    return launch_plan(shown, f"{ROOT / 'examples' / 'train_plan.py'} --report ran.json")


@pytest.mark.parametrize(
    ("strategy", "micro_batches", "asked", "expected"),
    [
        (
            "ddp",
            2,
            {"precision": "bf16", "lora": "r=4", "checkpoint_activations": True},
            # two layers, each with adapters of rank 4 at query and value, of 128 inputs and outputs
            {"optimizer": "AdamW", "trained_parameters": 2 * 2 * 4 * (128 + 128), "runs_of_a_block": 2},
        ),
        ("zero1", 4, {"precision": "bf16", "optimizer": "momentum"}, {"optimizer": "SGD"}),
        ("zero2", 1, {"precision": "fp16"}, {"optimizer": "AdamW"}),
        (
            "zero3",
            2,
            {"precision": "bf16", "selective_checkpointing": True},
            {"optimizer": "AdamW", "runs_of_a_block": 2},
        ),
        ("ddp", 1, {"precision": "fp32", "compile": True}, {"optimizer": "AdamW", "is_compiled": True}),
    ],
    ids=["adapters", "zero1", "zero2", "zero3", "compiled"],
)
def test_the_emitted_file_trains_what_was_planned(
    strategy: str, micro_batches: int, asked: dict[str, Any], expected: dict[str, Any], tmp_path: Path
) -> None:
    plan, folder = planned_as(strategy, micro_batches, **asked), tmp_path / "job"
    folder.mkdir()
    file = launch_file("torchrun", plan)
    (folder / file.file_name).write_text(file.text)
    run("bash", file.file_name, folder=folder)
    ran = json.loads((folder / "ran.json").read_text())
    variables = {variable.name: variable.value for variable in environment(plan)}
    assert ran["zero_stage"] == plan.layout.zero_stage
    assert (ran["processes"], ran["steps"]) == (plan.devices, int(variables["FORETRAIN_STEPS"])) == (2, 3)
    assert (ran["global_batch"], ran["micro_batches"]) == (plan.global_batch, micro_batches)
    assert ran["input_shape"] == [plan.micro_batch, 16]
    assert ran["precision"] == plan.precision == asked["precision"]
    assert ran["master_weights"] == ("FORETRAIN_MASTER_WEIGHTS" in variables)
    # FSDP computes with copies in half precision of its own shards, which are the FP32 masters.
    assert ran["weights"] == ("fp32" if plan.layout.zero_stage > 1 else variables["FORETRAIN_WEIGHTS"])
    assert {"runs_of_a_block": 1, "is_compiled": False, **expected}.items() <= ran.items()
    assert ran["last_loss"] < ran["first_loss"]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"LORA": "r=4,quantised"}, "four-bit weights need bitsandbytes"),
        ({"TENSOR_PARALLEL": "2"}, "FORETRAIN_TENSOR_PARALLEL=2: train_plan.py does not do this"),
        ({"OPTIMIZER": "muon"}, "FORETRAIN_OPTIMIZER=muon: train_plan.py runs sgd, momentum"),
        ({"PRECISION": "fp8"}, "FORETRAIN_PRECISION=fp8: train_plan.py runs fp32, tf32, bf16, fp16"),
    ],
)
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")  # torch.distributed.optim's own use
def test_the_reference_script_refuses_what_it_would_run_differently(
    changed: dict[str, str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with load_module(ROOT / "examples" / "train_plan.py") as script:
        for variable in environment(planned_as("ddp", 1, precision="bf16")):
            monkeypatch.setenv(variable.name, variable.value)
        script.check_plan()
        for name, value in changed.items():
            monkeypatch.setenv(f"FORETRAIN_{name}", value)
        with pytest.raises(SystemExit, match=message):
            script.check_plan()


@NAMESPACES
@pytest.mark.skipif(shutil.which("apt-get") is None, reason="Slurm is unpacked from Debian's packages")
def test_slurm_runs_its_file_on_two_nodes(tmp_path: Path) -> None:
    plan, folder = a_plan(2, 1), tmp_path / "job"
    file = written("slurm", plan, folder)
    run(ROOT / "scripts" / "slurm_for_tests.sh", "bash", "-c", WAIT, "wait", file, folder=folder)
    seen = check(plan, folder)
    assert [process["SLURMD_NODENAME"] for process in seen] == ["node-a", "node-b"]
    for process in seen:
        assert process["CUDA_VISIBLE_DEVICES"] == "0"
        assert process["SLURM_CPUS_PER_TASK"] == process["SLURM_CPUS_ON_NODE"] == "4"


@NAMESPACES
def test_ray_runs_its_file_on_two_nodes(tmp_path: Path) -> None:
    plan, folder = a_plan(2, 1), tmp_path / "job"
    file = written("ray", plan, folder)
    (tmp_path / "resolv.conf").touch()
    apart = ("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
    closed = ("bash", "-c", CLOSED_OFF, "closed", tmp_path / "resolv.conf")
    # Ray's nodes start in another folder than the one the file is run from, as they would on a cluster.
    run(*apart, *closed, sys.executable, "-c", CLUSTER, file.name, folder, folder=tmp_path)
    seen = check(plan, folder)
    assert [process["GROUP_RANK"] for process in seen] == ["0", "1"]
    assert [process["CUDA_VISIBLE_DEVICES"] for process in seen] == ["0", "0"]
