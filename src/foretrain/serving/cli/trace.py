"""`foretrain trace`: what a training step consists of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretrain.serving.cli.frame import Command, Output
from foretrain.serving.requests import TraceRequest

if TYPE_CHECKING:
    from foretrain.workloads.summary import PhaseSummary, TraceSummary
    from foretrain.workloads.trace import Trace


def run(request: TraceRequest, output: Output) -> None:
    """Print what a training step consists of."""
    from foretrain.serving import verbs
    from foretrain.serving.cli.terminal import print_json, spinner

    with spinner(f"Tracing {request.model}") as progress:
        answer = verbs.trace(request, progress)
    if output.json:
        print_json(answer.to_dict())
    else:
        show(answer)


COMMAND = Command(
    TraceRequest,
    Output,
    run,
    examples=("foretrain trace resnet50 --batch 32", "foretrain trace gpt2 --seq-len 512 --layers"),
)


def show(answer: Trace) -> None:
    """Print what the step consists of."""
    from foretrain.serving.cli.terminal import Column, print_line, print_notes, print_table
    from foretrain.units import MIB, format_bytes, format_flop

    summary = answer.step
    print_line(f"{answer.workload.source.name}: one training step, {_sizes(summary)}", "bold")
    rows = [
        ("parameters", f"{summary.parameters:,} ({summary.parameter_bytes / MIB:,.2f} MiB)"),
        ("trainable", f"{summary.trainable_parameters:,}"),
        ("forward + backward", format_flop(summary.forward_backward_flop)),
        ("saved activations", format_bytes(summary.activation_bytes)),
        (
            "layer outputs and gradients",
            f"{summary.forward_backward_bytes_per_sample / MIB:,.2f} MiB a sample",
        ),
    ]
    print_table([Column("what"), Column("how much", right=True)], rows)
    print_line()
    phases = {"forward": summary.forward, "backward": summary.backward, "optimizer": summary.optimizer}
    columns = [Column("phase"), *(Column(title, right=True) for title in _PHASE_TITLES)]
    print_table(columns, [(name, *_phase_cells(phase)) for name, phase in phases.items()])
    print_line()
    total = sum(summary.bytes_by_kind.values()) or 1.0
    print_table(
        [Column("kind"), Column("memory traffic", right=True), Column("share", right=True)],
        [
            (kind, format_bytes(moved), f"{moved / total:.1%}")
            for kind, moved in summary.bytes_by_kind.items()
        ],
    )
    if summary.unknown:
        print_line(f"No FLOP rule for: {', '.join(summary.unknown)} (their traffic is counted)", "yellow")
    print_notes(summary.notes)
    if answer.with_layers:
        print_line()
        _show_layers(summary)


_PHASE_TITLES = ("operators", "kernels", "matrix FLOP", "vector FLOP", "memory traffic")


def _phase_cells(phase: PhaseSummary) -> tuple[str, ...]:
    from foretrain.units import format_bytes, format_flop

    return (
        f"{phase.operators:,}",
        f"{phase.kernels:,}",
        format_flop(phase.flop),
        format_flop(phase.vector_flop),
        format_bytes(phase.bytes),
    )


def _sizes(summary: TraceSummary) -> str:
    samples = f"{summary.samples} sample{'s' if summary.samples != 1 else ''}"
    return f"{samples}, {summary.tokens:,} tokens" if summary.tokens else samples


def _show_layers(summary: TraceSummary) -> None:
    from foretrain.serving.cli.terminal import Column, print_table
    from foretrain.units import format_bytes, format_flop

    titles = ("output", "parameters", "forward", "backward", "forward traffic")
    columns = [Column("layer"), Column("type"), *(Column(title, right=True) for title in titles)]
    rows = [
        (
            layer.path or "(root)",
            layer.type,
            " ".join("x".join(map(str, shape)) for shape in layer.output_shapes),
            f"{layer.parameters:,}",
            format_flop(layer.forward_flop),
            format_flop(layer.backward_flop),
            format_bytes(layer.forward_bytes),
        )
        for layer in summary.layers
    ]
    print_table(columns, rows)
