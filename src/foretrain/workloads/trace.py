"""What `trace` answers: the training step of a workload at a glance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from foretrain.answers import Answer
from foretrain.encoding import encode
from foretrain.units import format_bytes, format_flop
from foretrain.workloads.summary import TraceSummary
from foretrain.workloads.workload import Workload, description


@dataclass(frozen=True)
class Trace(Answer):
    """A workload and the summary of its step; `with_layers` adds the table of layers to `to_dict`."""

    workload: Workload
    step: TraceSummary
    with_layers: bool = False

    def to_dict(self) -> dict[str, Any]:
        """The answer as plain data."""
        step = self.step
        encoded: dict[str, Any] = encode(step)
        if not self.with_layers:
            encoded.pop("layers")
        encoded["flop"] = {
            "forward": step.forward.flop,
            "backward": step.backward.flop,
            "forward_backward": step.forward_backward_flop,
        }
        encoded["coverage"] = {"unmodelled": encoded.pop("unknown")}
        return {"workload": description(self.workload, step.samples, step.tokens), **encoded}

    def summary(self) -> tuple[tuple[str, str], ...]:
        """Parameters, FLOP and bytes."""
        step = self.step
        return (
            ("model", self.workload.source.name),
            ("samples", f"{step.samples:,}"),
            ("parameters", f"{step.parameters:,}"),
            ("forward + backward", format_flop(step.forward_backward_flop)),
            ("saved activations", format_bytes(step.activation_bytes)),
        )
