"""How much longer frameworks written in Python take to launch than plain PyTorch: hosts of three sources.

    factor of a host = time of passes that the host paces / launch time of the same passes in plain PyTorch

Megatron-DeepSpeed and nanotron wrap every layer in modules with hooks, autograd functions, look-ups of
process groups and random states; small micro-batches under tensor parallelism show nothing else. A pass
counts where the device is busy for less than `_MOST_BUSY` of it. Hosts differ by a factor of two. A GPU gets
the geometric mean of the hosts it was timed in (boards of one kind share a platform: the GH200's is always
Grace), others that of all hosts.
"""

from __future__ import annotations

import csv
import json
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from calibration.datasets import ultrascale, vtrain
from foretrain.facts.devices import device
from foretrain.facts.hardware import hardware
from foretrain.prediction.cost_models import CallTimes, OperatorCostModel, call_times
from foretrain.prediction.step.parallel import with_launched_exchanges
from foretrain.prediction.strategies.program import Program, forward_end, optimizer_start
from foretrain.prediction.strategies.strategy import divide_step, layout_of
from foretrain.workloads.options import WorkloadRequest
from foretrain.workloads.workload import executed_graph, workload_of

FILE = "framework_host.json"
_MOST_BUSY = 0.6
_MANY = 8
"""Micro-batches from which update and gradient exchange hardly count."""
_BLOCK = ".h.0."
_SAILOR_HOSTS = {
    "gh200": "Clariden", "a100-sxm-40gb": "Google Cloud", "v100-sxm2-16gb": "Google Cloud",
    "a100-sxm-80gb": "sailor's A100-80",
}  # fmt: skip
"""Where Sailor's layers were timed (its README); its consumer cards are never launch-bound."""


@dataclass(frozen=True, slots=True)
class Paced:
    """A pass that the host paces: measured seconds over those of plain PyTorch's launches."""

    source: str
    host: str
    device_id: str
    factor: float


def calibrate(data: Path, graphs: Path) -> Mapping[str, Any]:
    """The factor of every host, and their geometric mean."""
    paced = _paced(data, graphs)
    sources = sorted({each.source for each in paced})
    return {
        "data": [
            {"source": source, "passes": sum(each.source == source for each in paced)} for source in sources
        ],
        **_fitted(paced),
        "hosts": _factors(paced),
    }


def without(source: str, data: Path, graphs: Path) -> Mapping[str, Any]:
    """The entries without a source."""
    return _fitted([each for each in _paced(data, graphs) if each.source != source])


def _paced(data: Path, graphs: Path) -> list[Paced]:
    return [*_sailor(data, graphs), *_vtrain(data, graphs), *_ultrascale(data, graphs)]


def _fitted(paced: Sequence[Paced]) -> dict[str, Any]:
    return {"factor": _mean(_factors(paced).values()), "devices": _by_device(paced)}


def _by_device(paced: Sequence[Paced]) -> dict[str, float]:
    """The mean of the hosts of each GPU."""
    devices = sorted({each.device_id for each in paced})
    return {
        gpu: _mean(_factors([each for each in paced if each.device_id == gpu]).values()) for gpu in devices
    }


def _factors(paced: Sequence[Paced]) -> dict[str, float]:
    """The median factor of each host."""
    of_host: dict[str, list[float]] = defaultdict(list)
    for each in paced:
        of_host[each.host].append(each.factor)
    return {host: float(np.median(factors)) for host, factors in sorted(of_host.items())}


def _mean(factors: Collection[float]) -> float:
    return float(np.exp(np.mean(np.log(list(factors)))))


def _sailor(data: Path, graphs: Path) -> Iterator[Paced]:
    """Forward and backward passes of one block of OPT-350M that hardly grow with the micro-batch."""
    seconds: dict[tuple[str, int, str], dict[int, float]] = defaultdict(dict)
    with (data / "sailor" / "layer_times.csv").open(newline="", encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            if (row["model"], row["layer"]) == ("OPT-350", "block") and row["phase"] != "update":
                key = (row["device"], int(row["tensor_parallel"]), row["phase"])
                seconds[key][int(row["micro_batch"])] = float(row["seconds"])
    model = _gpt(graphs, 1024, 2, 2048)
    for (gpu, tensor, phase), times in seconds.items():
        most = max(times)
        slow = [batch for batch in times if times[most] / most * batch < _MOST_BUSY * times[batch]]
        if gpu not in _SAILOR_HOSTS or not slow:
            continue
        program, spent = _times(model, gpu, tensor, 1, 2048, "tf32", "megatron-deepspeed", False)
        inside = np.array([_BLOCK in f"{call.module}." for call in program.graph.calls])
        place, end = np.arange(len(inside)), forward_end(program.graph)
        launching = spent.host[inside & ((place < end) if phase == "forward" else (place >= end))].sum()
        for batch in slow:
            yield Paced("sailor", _SAILOR_HOSTS[gpu], gpu, times[batch] / launching)


def _vtrain(data: Path, graphs: Path) -> Iterator[Paced]:
    """Steps without pipeline and replicas."""
    for run in vtrain.read_steps(data):
        if run.pipeline > 1 or run.data > 1 or run.micro_batches < _MANY:
            continue
        model = _gpt(graphs, run.width, run.layers, run.seq_len)
        asked = (vtrain.DEVICE, run.tensor, run.micro_batch, run.seq_len, "fp16", "megatron-deepspeed", True)
        yield from _whole("vtrain", vtrain.DEVICE, run.seconds / run.micro_batches, *_times(model, *asked))


def _ultrascale(data: Path, graphs: Path) -> Iterator[Paced]:
    """Steps on one node without pipeline."""
    gpu = hardware(ultrascale.HARDWARE).device.id
    for run in ultrascale.read(data):
        if run.seconds is None or run.nodes > 1 or run.pipeline > 1 or run.tensor == 1:
            continue
        if run.micro_batches < _MANY or run.micro_batch > 1:
            continue
        sizes = ultrascale.model_of(run).config
        config = {
            "model_type": "llama", "hidden_size": sizes["width"], "num_hidden_layers": sizes["layers"],
            "num_attention_heads": sizes["heads"], "num_key_value_heads": sizes["kv_heads"],
            "intermediate_size": sizes["hidden"], "vocab_size": sizes["vocabulary"],
            "max_position_embeddings": ultrascale.SEQ_LEN,
        }  # fmt: skip
        model = _model(graphs, config)
        asked = (gpu, run.tensor, run.micro_batch, ultrascale.SEQ_LEN, "bf16", "nanotron", False)
        yield from _whole("ultrascale", gpu, run.seconds / run.micro_batches, *_times(model, *asked))


def _whole(source: str, gpu: str, seconds: float, program: Program, spent: CallTimes) -> Iterator[Paced]:
    """A micro-batch, if the host paces it."""
    end = optimizer_start(program.graph)
    if spent.device[:end].sum() < _MOST_BUSY * seconds:
        yield Paced(source, source, gpu, seconds / spent.host[:end].sum())


@lru_cache(maxsize=4)
def _times(
    model: str,
    gpu: str,
    tensor: int,
    batch: int,
    seq_len: int,
    precision: str,
    framework: str,
    checkpoint: bool,
) -> tuple[Program, CallTimes]:
    """A micro-batch, and the times of its calls with the launches of plain PyTorch."""
    request = WorkloadRequest(
        model,
        batch=batch,
        seq_len=seq_len,
        precision=precision,
        attention="flash2" if framework == "nanotron" else "eager",
        framework=framework,
        checkpoint_activations=checkpoint,
        weights="fp32" if precision == "tf32" else precision,
        master_weights=precision != "tf32",
        gradients="fp32" if framework == "nanotron" else None,
    )
    program = divide_step(executed_graph(workload_of(request)), layout_of(f"tp={tensor}", tensor, tensor))
    step = OperatorCostModel().price(program.graph, device(gpu))
    times = with_launched_exchanges(call_times(step), program, step)
    return program, CallTimes(times.device, times.host / step.host.framework_factor)


def _gpt(graphs: Path, width: int, layers: int, seq_len: int) -> str:
    return _model(
        graphs,
        {
            "model_type": "gpt2", "n_embd": width, "n_layer": layers, "n_head": 16, "n_positions": seq_len,
            "vocab_size": 51_200, "activation_function": "gelu",
        },
    )  # fmt: skip


def _model(graphs: Path, config: Mapping[str, Any]) -> str:
    name = "-".join(str(value) for value in config.values())
    file = graphs / f"{name}.json"
    graphs.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(config), encoding="utf-8")
    return f"hf:{file}"
