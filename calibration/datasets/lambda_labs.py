"""Lambda's PyTorch training benchmark: ten tasks of NVIDIA's DeepLearningExamples on one GPU of many types.

Throughputs are in the task's own unit (images, sequences, tokens, frames of sound), so GPUs can be compared
only within a task. Runs of one configuration and container are reduced to their median. Later sets state the
batch; for the first, `lambda_batches.toml` does, and where that has no row for a GPU, the batch of the GPU
nearest in memory is scaled in proportion (`batch_known` is false). "FP32" means TF32 on GPUs that have it,
since the containers enable it.

Skipped: runs on several GPUs (see `lambda_labs_scaling`), laptop GPUs, which have no sheet, and the
containers named sonantic, which ran three GPUs in full FP32 where all others had TF32.

Graphs exist for ResNet-50, BERT on SQuAD and NCF. BERT's head has two outputs a token, which costs nothing
beside its blocks: the zoo's BERT with two classes stands in for it, at the 384 tokens of NVIDIA's script,
with eager attention.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from calibration.datasets.measurements import rows
from foretrain.facts.devices import Device, device
from foretrain.facts.sheets import read_toml
from foretrain.workloads.graph import Graph
from foretrain.workloads.options import ResolvedOptions
from foretrain.workloads.readers import ZooModel
from foretrain.workloads.readers._base import ModelSource
from foretrain.workloads.workload import Workload, graph_at
from foretrain.workloads.zoo.catalogue import BuildOptions, Sizes

if TYPE_CHECKING:
    from foretrain.workloads.example import Example


FILE = Path("lambda/pytorch_train_throughput.csv.gz")
DEVICES: Mapping[str, str] = {
    "A100-PCIE-40GB": "a100-pcie-40gb",
    "A100-PCIE-80GB": "a100-pcie-80gb",
    "A100-SXM-80GB": "a100-sxm-80gb",
    "A100-SXM4-40GB": "a100-sxm-40gb",
    "A100-SXM4-80GB": "a100-sxm-80gb",
    "A100_80GB_PCIe": "a100-pcie-80gb",
    "A10": "a10",
    "A40": "a40",
    "GeForce_GTX_1080_Ti": "gtx1080ti",
    "GeForce_RTX_2080_Ti": "rtx2080ti",
    "GeForce_RTX_3070": "rtx3070",
    "GeForce_RTX_3080": "rtx3080",
    "GeForce_RTX_3090": "rtx3090",
    "H100_80GB_HBM3": "h100-sxm",
    "H100_PCIe": "h100-pcie",
    "Quadro_RTX_5000": "quadro-rtx5000",
    "Quadro_RTX_6000": "rtx6000",
    "Quadro_RTX_8000": "rtx8000",
    "RTX_A4000": "rtxa4000",
    "RTX_A4500": "rtxa4500",
    "RTX_A5000": "rtxa5000",
    "RTX_A5500": "rtxa5500",
    "RTX_A6000": "rtxa6000",
    "TITAN_RTX": "titanrtx",
    "Tesla_V100-SXM2-16GB": "v100-sxm2-16gb",
    "Tesla_V100-SXM2-32GB": "v100-sxm2-32gb",
}
"""By what the driver printed, without the vendor."""
_DEVICES_OF_INSTANCES = {"p3.8xlarge": 4, "p3.16xlarge": 8}
_OTHER_HARNESS = "sonantic"
_BATCHES = Path(__file__).with_name("lambda_batches.toml")
_BERT_TOKENS = 384
_BERT = {
    "bert_base_squad": {"layers": 12, "width": 768, "heads": 12, "hidden": 3072},
    "bert_large_squad": {"layers": 24, "width": 1024, "heads": 16, "hidden": 4096},
}
TASKS = frozenset({"resnet50", "ncf", *_BERT})


@dataclass(frozen=True, slots=True)
class LambdaRun:
    """The median run of one task; `seconds` are those of one sample in the task's unit."""

    task: str
    precision: str
    device_id: str
    software: str
    batch: float
    batch_known: bool
    seconds: float


@dataclass(frozen=True, slots=True)
class Reading:
    """The runs, and how many rows of the file were left out, by reason."""

    runs: tuple[LambdaRun, ...]
    left_out: Mapping[str, int]


def read(data: Path) -> Reading:
    """All single-GPU runs on known devices."""
    left_out: dict[str, int] = {}
    repeats: dict[tuple[str, str, str, str, str], list[float]] = {}
    for row in rows(data / FILE):
        reason = _reason(row)
        if reason:
            left_out[reason] = left_out.get(reason, 0) + 1
            continue
        precision = "fp32" if row["prec"] == "FP32" else "fp16"
        version = ".".join(row["torch"].split(".")[:2])
        key = (row["task"], precision, DEVICES[_plain(row["gpu"])], version, row["global_batch"])
        repeats.setdefault(key, []).append(float(row["throughput"]))
    runs = []
    for (task, precision, device_id, version, batch), throughputs in repeats.items():
        size = float(batch) if batch else _batch(task, precision, device_id)
        if size is None:
            left_out["no batch known"] = left_out.get("no batch known", 0) + len(throughputs)
            continue
        known = bool(batch) or device_id in _table()[precision]
        runs.append(LambdaRun(task, precision, device_id, version, size, known, 1 / median(throughputs)))
    return Reading(tuple(runs), left_out)


def _reason(row: Mapping[str, str]) -> str:
    """Why a row cannot be used; empty if it can."""
    if devices(row) > 1:
        return "several GPUs"
    return _flaw(row)


def is_usable(row: Mapping[str, str]) -> bool:
    """Whether a row on any number of GPUs has a throughput on a known device."""
    return not _flaw(row)


def _flaw(row: Mapping[str, str]) -> str:
    if not row["throughput"]:
        return "did not finish"
    if _OTHER_HARNESS in row["dir"]:
        return "another container"
    return "" if _plain(row["gpu"]) in DEVICES else "laptop GPU without a sheet"


def devices(row: Mapping[str, str]) -> int:
    """How many GPUs a row is of."""
    if row["ngpu"]:
        return int(float(row["ngpu"]))
    match = re.search(r"(?:^|_)(\d+)x", row["dir"])
    return int(match.group(1)) if match else _DEVICES_OF_INSTANCES.get(row["dir"], 1)


def device_id(row: Mapping[str, str]) -> str:
    """The device of a usable row."""
    return DEVICES[_plain(row["gpu"])]


def batch_per_device(row: Mapping[str, str]) -> float | None:
    """The batch of each GPU: as the row says, else as published for one GPU."""
    if row["global_batch"]:
        return float(row["global_batch"]) / devices(row)
    return _batch(row["task"], "fp32" if row["prec"] == "FP32" else "fp16", device_id(row))


def _plain(name: str) -> str:
    return name.removeprefix("NVIDIA_")


@cache
def _table() -> dict[str, Any]:
    return dict(read_toml(_BATCHES))


def _batch(task: str, precision: str, device_id: str) -> float | None:
    """The first set's batch: as published, or that of the GPU nearest in memory, in proportion."""
    column = _table()["columns"]["tasks"].index(task)
    known: dict[str, float] = {
        name: sizes[column] for name, sizes in _table()[precision].items() if sizes[column]
    }
    if device_id in known:
        return float(known[device_id])
    if device_id in _table()[precision] or not known:
        return None
    memory = device(device_id).memory_bytes

    def distance(name: str) -> tuple[float, str]:
        return abs(math.log(device(name).memory_bytes / memory)), name

    nearest = min(known, key=distance)
    return max(1.0, known[nearest] * memory / device(nearest).memory_bytes)


@dataclass(frozen=True)
class SquadBert(ModelSource):
    """BERT as it is fine-tuned on SQuAD."""

    name: str
    kind: str = field(default="squad", init=False)
    runs_user_code: bool = field(default=False, init=False)

    def fingerprint(self) -> str:
        return f"{self.name} {ZooModel('bert-base', 'bert-base').fingerprint()}"

    def example(self, options: BuildOptions) -> Example:
        import torch

        from foretrain.workloads.zoo.transformers import bert

        sizes = Sizes(options.batch or 1, options.seq_len or _BERT_TOKENS, attention=options.attention)
        with torch.device("meta"):
            return bert(sizes, classes=2, **_BERT[self.name])


def graph(run: LambdaRun, target: Device) -> Graph:
    """One step of a run, at its batch."""
    has_tf32 = target.sheet.has("tf32_tensor_flop_per_second")
    precision = "fp16" if run.precision == "fp16" else "tf32" if has_tf32 else "fp32"
    if run.task in _BERT:
        source: ModelSource = SquadBert(run.task)
        sizes = BuildOptions(seq_len=_BERT_TOKENS, attention="eager")
        options = ResolvedOptions(precision=precision, optimizer="adam", attention="eager")
    else:
        source, sizes = ZooModel(run.task, run.task), BuildOptions()
        optimizer = "momentum" if run.task == "resnet50" else "adam"
        options = ResolvedOptions(precision=precision, optimizer=optimizer)
    return graph_at(Workload(source, sizes, options), max(2, round(run.batch)))
