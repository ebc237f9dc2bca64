"""Traces in the form in which Kineto exports them, made by hand: a GPU step with kernels and their links."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

CPU, GPU = 100, 0
_LAUNCH_MICROSECONDS = 5.0


class TraceWriter:
    """Lays events out one after another on the thread of the CPU, and kernels on a stream of the GPU."""

    def __init__(self, links_by_correlation: bool = False) -> None:
        self.events: list[dict[str, Any]] = []
        self._now = 1000.0
        self._gpu = 1000.0
        self._ids = 0
        self._by_correlation = links_by_correlation

    def step(self, number: int, kernels: dict[str, float]) -> None:
        """A training step of one linear layer; `kernels` are the microseconds of its three kernels."""
        start = self._now
        sequence = 10 * number
        with_layer = self._now
        self._op("aten::linear", sequence, [("aten::addmm", kernels["forward"])])
        self._annotation("0", with_layer)
        backward = f"autograd::engine::evaluate_function: AddmmBackward{0}"
        self._op(backward, sequence, [("aten::mm", kernels["backward"])], thread=CPU + 1)
        update = self._now
        self._op("aten::_foreach_add_", None, [("aten::_foreach_add_", kernels["optimizer"])])
        self._annotation("Optimizer.step#SGD.step", update)
        self._now = max(self._now, self._gpu)
        self._annotation(f"ProfilerStep#{number}", start)

    def _op(self, name: str, sequence: int | None, parts: list[tuple[str, float]], thread: int = CPU) -> None:
        start = self._now
        identity = self._identity()
        for part, microseconds in parts:
            self._now += 1.0
            inner = self._identity()
            begin = self._now
            self._launch(inner, microseconds, thread)
            self._complete("cpu_op", part, begin, self._now, thread, {"External id": inner})
        self._now += 1.0
        given = {"External id": identity}
        if sequence is not None:
            given |= {"Sequence number": sequence, "Fwd thread id": 0}
        self._complete("cpu_op", name, start, self._now, thread, given)

    def _launch(self, operator: int, microseconds: float, thread: int) -> None:
        correlation = 1_000_000 + self._identity()
        begin = self._now
        self._now += _LAUNCH_MICROSECONDS
        link = {"correlation": correlation} | ({} if self._by_correlation else {"External id": operator})
        self._complete("cuda_runtime", "cudaLaunchKernel", begin, self._now, thread, link)
        start = max(self._gpu, self._now)
        self._gpu = start + microseconds
        self._complete("kernel", "gemm", start, self._gpu, 7, {"stream": 7, **link}, process=GPU)

    def _annotation(self, name: str, start: float) -> None:
        self._complete("user_annotation", name, start, self._now, CPU, {})

    def _complete(
        self,
        category: str,
        name: str,
        start: float,
        end: float,
        thread: int,
        args: dict[str, Any],
        process: int = CPU,
    ) -> None:
        self.events.append(
            {"ph": "X", "cat": category, "name": name, "pid": process, "tid": thread, "ts": start,
             "dur": end - start, "args": args}
        )  # fmt: skip

    def _identity(self) -> int:
        self._ids += 1
        return self._ids

    def write(self, file: Path, device: str = "NVIDIA GeForce RTX 3090") -> Path:
        """The file, compressed if its name says so."""
        content = {
            "schemaVersion": 1,
            "deviceProperties": [{"id": 0, "name": device}],
            "traceEvents": [
                {"ph": "M", "name": "process_name", "pid": CPU, "tid": 0, "args": {"name": "python"}},
                *self.events,
            ],
        }
        text = json.dumps(content)
        file.write_bytes(gzip.compress(text.encode()) if file.suffix == ".gz" else text.encode())
        return file


KERNELS = {"forward": 100.0, "backward": 200.0, "optimizer": 50.0}


def gpu_trace(file: Path, steps: int = 4, links_by_correlation: bool = False) -> Path:
    """Steps of a linear layer whose first one is slower, as warm-up is."""
    writer = TraceWriter(links_by_correlation)
    for number in range(steps):
        slower = 10.0 if number == 0 else 1.0
        writer.step(number, {name: slower * each for name, each in KERNELS.items()})
    return writer.write(file)
