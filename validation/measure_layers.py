"""Times of the layers of some networks on this machine's CPU: `python -m validation.measure_layers`.

Every leaf module is run alone, forward and backward, on the inputs it has in the network; a whole step is run
as it is. Times are CPU times of the one thread, the least of eleven repeats: other work on a shared machine
takes turns with it and lengthens wall time, and CPU time only by its use of the caches. Writes
`data/layers/NAME.json` in the form that `foretrain profile --json` has and `foretrain learn layers` reads.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from foretrain.measuring.profiling.running import real_example
from foretrain.prediction.operators.per_layer import ROWS, complexity
from foretrain.prediction.operators.pricing import table
from foretrain.workloads.graph import Phase
from foretrain.workloads.ops import Work
from foretrain.workloads.options import WorkloadRequest
from foretrain.workloads.rules import operators
from foretrain.workloads.workload import Workload, graph_of, workload_of

NETWORKS = ("alexnet", "googlenet-no-aux", "vgg11", "resnet18", "resnet34")
BATCH, IMAGE_SIZE, REPEATS = 2, 96, 11
FOLDER = Path(__file__).parent / "data" / "layers"


def cpu_seconds(work: Callable[[], object]) -> float:
    """The least CPU time of this thread over repeats, after one to warm up: disturbances only lengthen it."""
    work()
    taken = []
    for _ in range(REPEATS):
        start = time.thread_time()
        work()
        taken.append(time.thread_time() - start)
    return min(taken)


def layer_seconds(module: nn.Module, inputs: tuple[Any, ...]) -> dict[Phase, float]:
    """Forward and backward of one module on its inputs."""
    given = tuple(
        each.detach().requires_grad_(each.is_floating_point()) if isinstance(each, torch.Tensor) else each
        for each in inputs
    )
    output = module(*given)
    wanted = [each for each in (*given, *module.parameters()) if getattr(each, "requires_grad", False)]
    gradient = torch.ones_like(output)
    return {
        Phase.FORWARD: cpu_seconds(lambda: module(*given)),
        Phase.BACKWARD: cpu_seconds(
            lambda: torch.autograd.grad(output, wanted, gradient, retain_graph=True, allow_unused=True)
        ),
    }


def inputs_of_leaves(module: nn.Module, run: Callable[[], object]) -> dict[str, tuple[Any, ...]]:
    """What each leaf module is called with during a run."""
    seen: dict[str, tuple[Any, ...]] = {}
    handles = [
        leaf.register_forward_pre_hook(lambda _, given, name=name: seen.setdefault(name, given) and None)
        for name, leaf in module.named_modules()
        if name and not list(leaf.children())
    ]
    run()
    for handle in handles:
        handle.remove()
    return seen


def works_of(workload: Workload) -> dict[tuple[str, Phase], list[Work]]:
    """The works of the recorded step by layer and phase."""
    works: dict[tuple[str, Phase], list[Work]] = defaultdict(list)
    for op in operators(graph_of(workload)):
        if op.work.kind in ROWS and op.work.kernels:
            works[op.module, op.phase].append(op.work)
    return works


def profile(name: str) -> dict[str, object]:
    """The layers of one network, and its whole step."""
    workload = workload_of(WorkloadRequest(model=name, batch=BATCH, image_size=IMAGE_SIZE, no_optimizer=True))
    example = real_example(workload, torch.device("cpu"))
    module = example.module
    for each in module.modules():
        if hasattr(each, "inplace"):
            setattr(each, "inplace", False)  # noqa: B010 - no field of Module; a layer is run again on the inputs it had

    def forward() -> torch.Tensor:
        output = module(*example.inputs)
        output = output[0] if isinstance(output, tuple) else output  # auxiliary heads
        loss: torch.Tensor = output.float().square().mean()
        return loss

    def step() -> None:
        forward().backward()
        module.zero_grad(set_to_none=True)

    inputs, recorded = inputs_of_leaves(module, forward), works_of(workload)
    rows = []
    for path, given in inputs.items():
        for phase, seconds in layer_seconds(module.get_submodule(path), given).items():
            works = recorded.get((path, phase), [])
            kinds = {work.kind for work in works}
            if not works:
                continue
            main = max(kinds, key=lambda kind: _operations([work for work in works if work.kind is kind]))
            rows.append({
                "layer": path, "phase": phase.value, "kind": main.value, "works": 1,
                "operations": _operations([work for work in works if work.kind is main]),
                "measured_seconds": seconds, "predicted_seconds": None,
            })  # fmt: skip
    return {
        "model": name, "device": "here", "batch": BATCH, "image_size": IMAGE_SIZE, "clock": "CPU time",
        "torch": str(torch.__version__), "threads": torch.get_num_threads(),
        "traced_step_seconds": cpu_seconds(step), "works": rows,
    }  # fmt: skip


def _operations(works: list[Work]) -> float:
    return float(sum(complexity(table([work]), work.kind).sum() for work in works))


def main() -> None:
    """All networks."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in NETWORKS:
        text = json.dumps(profile(name), indent=0)
        (FOLDER / f"{name}.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
