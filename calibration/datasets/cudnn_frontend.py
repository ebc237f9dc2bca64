"""cuDNN's own benchmarks: attention and norms, forward and backward, on H200, GB200 and GB300.

Attention is that of language models (causal or not, grouped queries, a window in GPT-OSS) and video models.
Left out: backward passes in FP8 with a mask that their kernels ignore (windows; causal on the H200), and the
slower, reproducible backward pass where the ordinary one was measured too. GB300 is left out as long as it is
no device.

Norms were run by cuDNN, by PyTorch eager and by torch.compile; the eager ones are what a plain step runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from calibration.datasets.measurements import Measurements, measurements_of, rows
from calibration.datasets.works import attention, norm
from foretrain.facts.devices import devices
from foretrain.workloads.ops import Direction, Work

SOURCE = "cudnn_frontend"
ATTENTION_FILE = Path("cudnn_frontend/attention.csv")
NORMS_FILE = Path("cudnn_frontend/norms.csv")
_DEVICES = {"h200": "h200-sxm", "gb200": "gb200", "gb300": "gb300"}
_DTYPES = {"bf16": "bfloat16", "fp8": "float8_e4m3fn"}
_DIRECTIONS = {"forward": Direction.FORWARD, "backward": Direction.BACKWARD}


def read_attention(data: Path) -> Measurements:
    """Attention in BF16 and FP8 with one scale per tensor; the label is the model."""
    return measurements_of(SOURCE, _attention(data))


def _attention(data: Path) -> Iterator[tuple[Work, str, float, str]]:
    listed = [row for row in rows(data / ATTENTION_FILE) if row["precision"] in _DTYPES]
    ordinary = {_call(row) for row in listed if row["deterministic"] == "0"}
    for row in listed:
        device_id = _DEVICES[row["device"]]
        is_doubled = row["deterministic"] == "1" and _call(row) in ordinary
        if device_id not in devices() or is_doubled or _ignores_its_mask(row):
            continue
        work = attention(
            int(row["batch"]),
            (int(row["q_len"]), int(row["kv_len"])),
            (int(row["heads"]), int(row["kv_heads"])),
            (int(row["head_dim_qk"]), int(row["head_dim_v"])),
            direction=_DIRECTIONS[row["phase"]],
            dtype=_DTYPES[row["precision"]],
            is_causal=row["mask"] == "causal",
            window=int(float(row["window"] or 0)),
        )
        yield work, device_id, float(row["seconds"]), row["model"]


def _call(row: Mapping[str, str]) -> tuple[str, ...]:
    names = ("device", "model", "precision", "mask", "batch", "q_len", "kv_len", "phase", "window")
    return tuple(row[name] for name in names)


def _ignores_its_mask(row: Mapping[str, str]) -> bool:
    is_backward_in_fp8 = row["phase"] == "backward" and row["precision"] == "fp8"
    return is_backward_in_fp8 and (
        row["window"] != "" or (row["device"] == "h200" and row["mask"] == "causal")
    )


def read_norms(data: Path, backend: str = "pytorch") -> Measurements:
    """Norms in BF16 by one backend: `pytorch`, `cudnn` or `torch_compile`; the label is the norm."""
    return measurements_of(SOURCE, _norms(data, backend))


def _norms(data: Path, backend: str) -> Iterator[tuple[Work, str, float, str]]:
    for row in rows(data / NORMS_FILE):
        device_id = _DEVICES[row["device"]]
        if row["backend"] == backend and device_id in devices():
            work = norm(
                int(row["rows"]),
                int(row["width"]),
                _DIRECTIONS[row["phase"]],
                _DTYPES[row["precision"]],
                has_mean=row["norm"] == "layer_norm",
            )
            yield work, device_id, float(row["seconds"]), row["norm"]
