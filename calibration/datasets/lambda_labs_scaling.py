"""Lambda's benchmarks on 2 to 8 GPUs of a machine, with the same run on one of them.

TensorFlow (`tf_cnn_benchmarks`, synthetic data, variables replicated or on a server): a machine's name says
its host, its GPU, whether NVLink bridges were in, and whether XLA compiled. PyTorch: NVIDIA's
DeepLearningExamples, a folder for each machine and number of GPUs; where a machine has no run on one GPU,
the median of the same GPU and software stands for it. Repeats are taken together by their median.

Left out: NCF, whose rows on several GPUs are broken; Transformer-XL, whose throughput is that of one GPU
times their number to 2 % on every machine, also where BERT reaches a tenth of it; runs on other GPUs than
sheets have; and runs whose single GPU is not known. SSD's throughput is one worker's in containers before
PyTorch 1.13.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

from calibration.datasets import lambda_labs
from calibration.datasets.measurements import rows
from foretrain.facts.sheets import read_toml

TENSORFLOW, PYTORCH = "TensorFlow", "PyTorch"
TENSORFLOW_FILE = Path("lambda/tensorflow_throughput.csv.gz")
_NETWORKS = Path(__file__).with_name("lambda_networks.toml")
_MOST = 8
_PER_WORKER, _PER_WORKER_SOFTWARE = "SSD", ("1.4", "1.7", "1.9", "1.10")
_TENSORFLOW_DEVICES: Mapping[str, str] = {
    "GeForce_RTX_2080_Ti": "rtx2080ti",
    "GeForce_RTX_3070": "rtx3070",
    "GeForce_RTX_3080": "rtx3080",
    "GeForce_RTX_3090": "rtx3090",
    "Quadro_RTX_6000": "rtx6000",
    "Quadro_RTX_8000": "rtx8000",
    "RTX_A6000": "rtxa6000",
    "A100-PCIE-40GB": "a100-pcie-40gb",
    "A100-SXM4-40GB": "a100-sxm-40gb",
    "Tesla_V100-SXM2-16GB": "v100-sxm2-16gb",
    "Tesla_V100-SXM3-32GB": "v100-sxm2-32gb",
}
"""By the names in a machine's name; the SXM3 module of the DGX-2 has the chip and memory of the SXM2."""


@dataclass(frozen=True, slots=True)
class ScalingRun:
    """A step on several GPUs, and the same on one; `is_bridged` where NVLink bridges pairs of cards.

    `machine` names links and host: runs of one machine can predict each other.
    """

    framework: str
    machine: str
    device_id: str
    is_bridged: bool
    is_compiled: bool
    network: str
    precision: str
    devices: int
    batch: float
    single_seconds: float
    seconds: float

    @property
    def gradient_bytes(self) -> float:
        """What is reduced; PyTorch's scripts reduce half-precision gradients in half precision."""
        is_half = self.framework == PYTORCH and self.precision == "fp16"
        return float(_network(self.network)["parameters"]) * (2 if is_half else 4)

    @property
    def gradients(self) -> int:
        """In how many tensors they come."""
        return int(_network(self.network)["tensors"])


def read(data: Path) -> list[ScalingRun]:
    """All runs on several GPUs whose single one is known."""
    return [*_tensorflow(data), *_pytorch(data)]


@cache
def _networks() -> Mapping[str, Any]:
    return dict(read_toml(_NETWORKS))


def _network(name: str) -> Mapping[str, Any]:
    network: Mapping[str, Any] = _networks()[name]
    return network


def _tensorflow(data: Path) -> Iterator[ScalingRun]:
    chosen = [
        row
        for row in rows(data / TENSORFLOW_FILE)
        if row["mode"] == "train" and row["data"] == "syn" and float(row["images_per_sec"] or 0) > 0
    ]
    single = {
        _tensorflow_key(row): 1 / float(row["images_per_sec"]) for row in chosen if int(row["ngpu"]) == 1
    }
    for row in chosen:
        name = row["system"]
        device_id = tensorflow_device(name)
        alone = single.get(_tensorflow_key(row))
        if device_id is None or alone is None or not 1 < int(row["ngpu"]) <= _MOST:
            continue
        batch = float(row["batch_per_gpu"])
        bridged, compiled = "NVLink" in name, "XLA" in name
        host = name.split("-")[0]
        yield ScalingRun(
            TENSORFLOW,
            f"{host} {device_id}{' NVLink' * bridged}{' XLA' * compiled} {row['var_update']}",
            device_id,
            bridged,
            compiled,
            row["model"],
            row["prec"],
            int(row["ngpu"]),
            batch,
            batch * alone,
            batch * int(row["ngpu"]) / float(row["images_per_sec"]),
        )


def tensorflow_device(system: str) -> str | None:
    """The device in the name of a machine; None for one without a sheet, as laptop GPUs."""
    return next((each for part, each in _TENSORFLOW_DEVICES.items() if part in system), None)


def _tensorflow_key(row: Mapping[str, str]) -> tuple[str, ...]:
    """One machine under all its names: some carry the number of GPUs."""
    name = re.sub(r"([-_])\d+x", r"\1", row["system"])
    return name, row["var_update"], row["prec"], row["model"]


def _pytorch(data: Path) -> Iterator[ScalingRun]:
    repeats: dict[tuple[str, ...], list[float]] = {}
    batches: dict[tuple[str, ...], float] = {}
    for row in rows(data / lambda_labs.FILE):
        if row["task"] not in _networks() or not lambda_labs.is_usable(row):
            continue
        devices = lambda_labs.devices(row)
        version = ".".join(row["torch"].split(".")[:2])
        per_worker = row["task"] == _PER_WORKER and version in _PER_WORKER_SOFTWARE
        throughput = float(row["throughput"]) * (devices if per_worker else 1)
        key = (
            _pytorch_machine(row["dir"]), lambda_labs.device_id(row), row["prec"], version, row["task"],
            str(devices),
        )  # fmt: skip
        batch = lambda_labs.batch_per_device(row)
        if batch is not None:
            repeats.setdefault(key, []).append(throughput)
            batches.setdefault(key, batch)
    middle = {key: median(throughputs) for key, throughputs in repeats.items()}
    yield from _paired(middle, batches)


def _paired(
    middle: Mapping[tuple[str, ...], float], batches: Mapping[tuple[str, ...], float]
) -> Iterator[ScalingRun]:
    elsewhere: dict[tuple[str, ...], list[float]] = {}
    for key, throughput in middle.items():
        if key[-1] == "1":
            elsewhere.setdefault(key[1:-1], []).append(throughput)
    for key, throughput in middle.items():
        machine, device_id, precision, _, task, count = key
        devices = int(count)
        same = elsewhere.get(key[1:-1])
        alone = middle.get((*key[:-1], "1")) or (median(same) if same else None)
        if alone is None or not 1 < devices <= _MOST:
            continue
        units = batches[key] * float(_network(task).get("units_per_sample", 1))
        yield ScalingRun(
            PYTORCH,
            f"{machine} {device_id}",
            device_id,
            "NVlink" in machine,
            False,
            task,
            "fp32" if precision == "FP32" else "fp16",
            devices,
            batches[key],
            units / alone,
            units * devices / throughput,
        )


def _pytorch_machine(folder: str) -> str:
    """A folder's name without the number of GPUs; Lambda's rented machines are identical."""
    if folder.startswith("LambdaOD"):
        return "LambdaOD"
    return re.sub(r"(^|_)\d+x", r"\1", folder)
