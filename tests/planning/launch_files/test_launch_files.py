"""Launch files: valid in their language, and really starting what the plan says."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from foretrain.errors import InvalidRequest, UnknownName
from foretrain.planning.launch_files import launch_file, launch_targets
from foretrain.planning.launch_files._base import LaunchPlan, environment
from foretrain.planning.launch_files.launchers import Torchrun
from foretrain.prediction.strategies.strategy import is_single_process, layout_of
from foretrain.registry import DuplicateName, Registry

SCHEMA = Draft202012Validator(json.loads((Path(__file__).parent / "trainjob.schema.json").read_text()))
AWKWARD = ("--note", 'it\'s "50 %" $HOME `id` {x} \\', "--lr=0.1")


def a_plan(strategy: str = "ddp", nodes: int = 2, per_node: int = 8, **others: Any) -> LaunchPlan:
    settings: dict[str, Any] = {"global_batch": 1024, "precision": "bf16", "arguments": AWKWARD} | others
    layout = layout_of(strategy, nodes * per_node, per_node)
    return LaunchPlan("resnet50-a100", "A100", nodes, per_node, layout, **settings)


PLANS = {
    "one device": a_plan(nodes=1, per_node=1),
    "one node": a_plan(nodes=1),
    "two nodes": a_plan(provider="aws", instance="p4d.24xlarge", region="us-east-1", limit_seconds=5401),
    "spot": a_plan("fsdp", spot=True, precision="tf32"),
    "degrees": a_plan("tp=4,pp=2,dp=2,zero=1", micro_batches=8, precision="fp32"),
    "single process": a_plan("dp", nodes=1, per_node=4),
}
every_plan = pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS.keys())


def expected_environment(plan: LaunchPlan) -> dict[str, str]:
    return {variable.name: variable.value for variable in environment(plan)}


@pytest.fixture
def run_shell(tmp_path: Path) -> Callable[..., list[dict[str, Any]]]:
    """Runs a shell text with torchrun, python, srun and scontrol replaced; what the first two were given."""
    recorder = (
        f"#!{sys.executable}\nimport json, os, sys\n"
        f"with open({str(tmp_path / 'log')!r}, 'a') as log:\n"
        "    print(json.dumps({'arguments': sys.argv[1:], 'environment': dict(os.environ)}), file=log)\n"
    )
    tools = {
        "torchrun": recorder,
        "python": recorder,
        "srun": '#!/usr/bin/env bash\nshift\nfor SLURM_NODEID in $(seq 0 $((NODES - 1))); do\n'
        '  export SLURM_NODEID; "$@"\ndone\n',
        "scontrol": "#!/usr/bin/env bash\nprintf 'node-a\\nnode-b\\n'\n",
    }  # fmt: skip
    for name, text in tools.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)

    def run(text: str, **variables: str) -> list[dict[str, Any]]:
        (tmp_path / "log").unlink(missing_ok=True)
        search = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
        subprocess.run(["bash", "-c", text], check=True, env={"PATH": search, "HOME": "/h", **variables})
        return [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]

    return run


def check_call(call: dict[str, Any], plan: LaunchPlan, rank: int, master: str) -> None:
    arguments = call["arguments"]
    assert arguments[-4:] == ["train.py", *AWKWARD]
    assert expected_environment(plan).items() <= call["environment"].items()
    check_torchrun(arguments[:-4], plan, rank, master)


def check_torchrun(options: list[str], plan: LaunchPlan, rank: int, master: str) -> None:
    if is_single_process(plan.layout):
        assert options == []
    elif plan.nodes == 1:
        assert options == ["--standalone", f"--nproc-per-node={plan.devices_per_node}"]
    else:
        assert options == [
            f"--nnodes={plan.nodes}", f"--nproc-per-node={plan.devices_per_node}", f"--node-rank={rank}",
            f"--master-addr={master}", "--master-port=29500",
        ]  # fmt: skip


@every_plan
@pytest.mark.parametrize("target", ["torchrun", "slurm"])
def test_shell_files_are_valid(target: str, plan: LaunchPlan) -> None:
    subprocess.run(["bash", "-n"], input=launch_file(target, plan).text, text=True, check=True)


@every_plan
def test_torchrun_starts_what_the_plan_says(plan: LaunchPlan, run_shell: Any) -> None:
    calls = run_shell(launch_file("torchrun", plan).text, NODE_RANK="1", MASTER_ADDR="node-a")
    assert len(calls) == 1
    check_call(calls[0], plan, 1, "node-a")


def test_torchrun_on_several_nodes_asks_for_their_rank() -> None:
    text = launch_file("torchrun", PLANS["two nodes"]).text
    evaluation = subprocess.run(
        ["bash", "-c", text], check=False, env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True
    )
    assert evaluation.returncode != 0
    assert "set NODE_RANK to 0 ... 1" in evaluation.stderr


@every_plan
def test_slurm_starts_each_node_once(plan: LaunchPlan, run_shell: Any) -> None:
    variables = {"NODES": str(plan.nodes), "SLURM_JOB_NODELIST": "node-[a-b]", "SLURM_CPUS_ON_NODE": "96"}
    calls = run_shell(launch_file("slurm", plan).text, **variables)
    assert len(calls) == plan.nodes
    for rank, call in enumerate(calls):
        check_call(call, plan, rank, "node-a")


def test_slurm_asks_for_the_machines() -> None:
    lines = launch_file("slurm", PLANS["two nodes"]).text.splitlines()
    asked = {line for line in lines if line.startswith("#SBATCH")}
    assert {"#SBATCH --nodes=2", "#SBATCH --gpus-per-node=8", "#SBATCH --time=91"} <= asked
    # Slurm stops reading at the first command: all directives come before it.
    assert max(lines.index(line) for line in asked) < lines.index("set -euo pipefail")


@every_plan
def test_skypilot_files_are_valid_and_start_what_the_plan_says(plan: LaunchPlan, run_shell: Any) -> None:
    task = yaml.safe_load(launch_file("skypilot", plan).text)
    assert task["name"] == plan.name
    assert task["num_nodes"] == plan.nodes
    assert task["envs"] == expected_environment(plan)
    assert task["resources"]["use_spot"] is plan.spot
    ranked = {"SKYPILOT_NODE_RANK": "1", "SKYPILOT_NODE_IPS": "10.0.0.1\n10.0.0.2"}
    calls = run_shell(task["run"], **task["envs"], **ranked)
    assert len(calls) == 1
    check_call(calls[0], plan, 1, "10.0.0.1")


def test_skypilot_rents_the_instance_or_else_the_accelerator() -> None:
    rented = yaml.safe_load(launch_file("skypilot", PLANS["two nodes"]).text)["resources"]
    assert rented == {"infra": "aws/us-east-1", "instance_type": "p4d.24xlarge", "use_spot": False}
    any_cloud = yaml.safe_load(launch_file("skypilot", PLANS["one node"]).text)["resources"]
    assert any_cloud == {"accelerators": "A100:8", "use_spot": False}


def test_skypilot_takes_accelerators_apart_from_the_machine_they_are_attached_to() -> None:
    plan = a_plan(nodes=1, per_node=4, provider="gcp", instance="n1-standard-16+4xT4", region="us-central1")
    rented = yaml.safe_load(launch_file("skypilot", plan).text)["resources"]
    assert rented == {
        "infra": "gcp/us-central1", "instance_type": "n1-standard-16", "accelerators": "T4:4",
        "use_spot": False,
    }  # fmt: skip
    named_so = a_plan(nodes=1, per_node=1, provider="paperspace", instance="GPU+")
    assert yaml.safe_load(launch_file("skypilot", named_so).text)["resources"]["instance_type"] == "GPU+"


@every_plan
def test_kubernetes_manifests_keep_the_published_schema_and_start_what_the_plan_says(
    plan: LaunchPlan,
) -> None:
    manifest = yaml.safe_load(launch_file("kubernetes", plan).text)
    SCHEMA.validate(manifest)
    trainer = manifest["spec"]["trainer"]
    assert (trainer["numNodes"], trainer["numProcPerNode"]) == (plan.nodes, plan.processes_per_node)
    assert trainer["resourcesPerNode"] == {"limits": {"nvidia.com/gpu": plan.devices_per_node}}
    assert trainer["command"] == ["python" if is_single_process(plan.layout) else "torchrun"]
    assert [_expanded(each) for each in trainer["args"]] == ["train.py", *AWKWARD]
    assert {each["name"]: _expanded(each["value"]) for each in trainer["env"]} == expected_environment(plan)
    assert manifest["spec"].get("activeDeadlineSeconds") == plan.limit_seconds


def _expanded(text: str) -> str:
    """As Kubernetes does where no $(NAME) is left."""
    assert "$(" not in text.replace("$$", "")
    return text.replace("$$", "$")


def test_kubernetes_names_and_resources_are_those_of_the_cluster() -> None:
    named = replace(PLANS["one node"], name="Qwen-" + "x" * 39 + "-y", vendor="amd", spot=True)
    text = launch_file("k8s", named).text
    manifest = yaml.safe_load(text)
    SCHEMA.validate(manifest)
    assert manifest["metadata"]["name"] == "qwen-" + "x" * 39
    assert manifest["spec"]["trainer"]["resourcesPerNode"]["limits"] == {"amd.com/gpu": 8}
    assert "# Spot nodes: select them in the runtime" in text


@pytest.mark.parametrize(
    ("path", "wrong"),
    [
        ("metadata", {"name": "Not-Lower"}),
        ("spec", {"trainer": {}}),
        ("spec", {"runtimeRef": {"name": "torch-distributed"}, "nodes": 2}),
    ],
)
def test_the_schema_refuses_what_the_api_server_refuses(path: str, wrong: object) -> None:
    manifest = yaml.safe_load(launch_file("kubernetes", PLANS["one node"]).text)
    assert not SCHEMA.is_valid({**manifest, path: wrong})


class FakeRay:
    """Just enough of Ray to run tasks at once and note where they were put."""

    def __init__(self) -> None:
        self.bundles: list[dict[str, int]] = []
        self.places: list[tuple[str, int, int]] = []

    def modules(self) -> dict[str, ModuleType]:
        ray, util = ModuleType("ray"), ModuleType("ray.util")
        groups, places = ModuleType("ray.util.placement_group"), ModuleType("ray.util.scheduling_strategies")
        vars(ray).update(remote=self.remote, init=lambda **_: None, get=lambda value: value, util=util)
        vars(util).update(get_node_ip_address=lambda: "10.0.0.1")
        vars(groups).update(placement_group=self.placement_group)
        vars(places).update(
            PlacementGroupSchedulingStrategy=lambda _, placement_group_bundle_index: (
                placement_group_bundle_index
            )
        )
        return {module.__name__: module for module in (ray, util, groups, places)}

    def placement_group(self, bundles: list[dict[str, int]], strategy: str) -> SimpleNamespace:
        assert strategy == "STRICT_SPREAD"
        self.bundles = bundles
        return SimpleNamespace(ready=lambda: None)

    def remote(self, function: Callable[..., Any]) -> SimpleNamespace:
        def options(num_gpus: int, num_cpus: int, scheduling_strategy: int) -> SimpleNamespace:
            assert num_cpus == num_gpus
            self.places.append((function.__name__, scheduling_strategy, num_gpus))
            return SimpleNamespace(remote=function)

        return SimpleNamespace(options=options)


@every_plan
def test_ray_files_start_torchrun_once_a_node(plan: LaunchPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    fake, started = FakeRay(), []
    for name, module in fake.modules().items():
        monkeypatch.setitem(sys.modules, name, module)

    def run(command: list[str], env: dict[str, str], cwd: str) -> SimpleNamespace:
        assert Path(cwd) == Path.cwd()
        started.append((command, env))
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr(subprocess, "run", run)
    program = compile(launch_file("ray", plan).text, "launch.py", "exec")
    with pytest.raises(SystemExit) as ended:
        exec(program, {"__name__": "__main__"})
    assert ended.value.code == 0
    assert fake.bundles == [{"GPU": plan.devices_per_node, "CPU": plan.devices_per_node}] * plan.nodes
    assert fake.places[0] == ("address", 0, 0)
    assert fake.places[1:] == [("run_node", rank, plan.devices_per_node) for rank in range(plan.nodes)]
    for rank, (command, variables) in enumerate(started):
        assert command[0] == (sys.executable if is_single_process(plan.layout) else "torchrun")
        check_call({"arguments": command[1:], "environment": variables}, plan, rank, "10.0.0.1")


@every_plan
@pytest.mark.parametrize("target", list(launch_targets()))
def test_every_variable_is_explained_in_a_comment(target: str, plan: LaunchPlan) -> None:
    lines = launch_file(target, plan).text.splitlines()
    for variable in environment(plan):
        at = next(index for index, line in enumerate(lines) if re.search(rf"\b{variable.name}\b", line))
        assert lines[at - 1].strip() == f"# {variable.purpose}"


def test_the_environment_says_the_degrees() -> None:
    environment = expected_environment(PLANS["degrees"])
    assert environment["FORETRAIN_TENSOR_PARALLEL"] == "4"
    assert environment["FORETRAIN_PIPELINE_PARALLEL"] == "2"
    assert environment["FORETRAIN_ZERO_STAGE"] == "1"
    assert environment["FORETRAIN_MICRO_BATCH"] == "64"  # 1024 samples, 2 replicas, 8 micro-batches
    assert environment["CUDA_DEVICE_MAX_CONNECTIONS"] == "1"
    assert environment["NVIDIA_TF32_OVERRIDE"] == "0"
    assert "FORETRAIN_TENSOR_PARALLEL" not in expected_environment(PLANS["one node"])


def test_files_are_named_after_the_job() -> None:
    names = [launch_file(target, PLANS["one node"]).file_name for target in launch_targets()]
    assert names == [
        "resnet50-a100-trainjob.yaml", "resnet50-a100-ray.py", "resnet50-a100.yaml", "resnet50-a100.sbatch",
        "resnet50-a100.sh",
    ]  # fmt: skip


def test_unknown_targets_name_the_nearest() -> None:
    with pytest.raises(
        UnknownName, match=r"did you mean slurm\?.*kubernetes, ray, skypilot, slurm, torchrun"
    ):
        launch_file("slrum", PLANS["one node"])


def test_two_targets_of_one_name_are_refused() -> None:
    with pytest.raises(DuplicateName):
        Registry("launch target", (Torchrun(), Torchrun()), name=lambda target: target.name)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"global_batch": 1000}, "give a multiple of 16"),
        ({"global_batch": 0}, "global_batch must be at least 1"),
        ({"script": "a.py\nrm -rf /"}, "printable line"),
        ({"limit_seconds": 0.0}, "time limit"),
        ({"strategy": "ps-sync"}, "no launcher can start ps-sync"),
    ],
)
def test_plans_that_cannot_be_launched_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        a_plan(**wrong)


def test_layouts_of_other_devices_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="needs 4 devices, but 2 nodes of 8 have 16"):
        LaunchPlan("job", "A100", 2, 8, layout_of("ddp", 4, 4), 64, "bf16")


def test_names_that_no_scheduler_takes_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="letters, digits and dashes"):
        LaunchPlan("my job", "A100", 1, 1, layout_of("ddp", 1, 1), 64, "bf16")
