"""What a launched script finds in its environment: the plan, and what libraries need for the strategy.

The `FORETRAIN_` variables say what the prediction assumed; a script that follows them runs what was
predicted. The others are read by the libraries themselves.
"""

from __future__ import annotations

from dataclasses import dataclass

from foretrain.planning.launch_files._base import LaunchPlan


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable, its value, and what it is for."""

    name: str
    value: str
    purpose: str


def environment(plan: LaunchPlan) -> tuple[Variable, ...]:
    """All variables of a plan, those of every plan first."""
    layout = plan.layout
    always = (
        Variable("FORETRAIN_STRATEGY", layout.name, "how the step is spread over the devices"),
        Variable("FORETRAIN_PRECISION", plan.precision, "fp16 and bf16 mean mixed precision"),
        Variable("FORETRAIN_GLOBAL_BATCH", str(plan.global_batch), "samples of a step on all devices"),
        Variable("FORETRAIN_MICRO_BATCH", str(plan.micro_batch), "samples of a micro-batch on one replica"),
        Variable("FORETRAIN_MICRO_BATCHES", str(plan.micro_batches), "micro-batches of a step"),
    )
    return (*always, *_degrees(plan), *_library_switches(plan))


def _degrees(plan: LaunchPlan) -> tuple[Variable, ...]:
    """The degrees above 1, and what else the layout settles."""
    layout = plan.layout
    numbers = (
        ("TENSOR_PARALLEL", layout.tensor, "devices each layer is split over"),
        ("CONTEXT_PARALLEL", layout.context, "devices each sequence is split over"),
        ("PIPELINE_PARALLEL", layout.pipeline, "stages the layers are split into"),
        ("PIPELINE_CHUNKS", layout.chunks, "parts of the model on each stage"),
        ("EXPERT_PARALLEL", layout.expert, "devices the experts are split over"),
        ("SHARD", layout.shard, "devices that share parameters, gradients or optimizer state"),
        ("DATA_PARALLEL", layout.data, "replicas that share nothing"),
    )
    variables = [
        Variable(f"FORETRAIN_{name}", str(number), purpose) for name, number, purpose in numbers if number > 1
    ]
    if layout.zero_stage:
        stage = "what is sharded: 1 optimizer state, 2 and gradients, 3 and parameters (FSDP)"
        variables.append(Variable("FORETRAIN_ZERO_STAGE", str(layout.zero_stage), stage))
    if layout.pipeline > 1:
        variables.append(
            Variable("FORETRAIN_PIPELINE_SCHEDULE", layout.schedule, "order of micro-batches in the pipeline")
        )
    if layout.sequence_parallel:
        variables.append(
            Variable("FORETRAIN_SEQUENCE_PARALLEL", "1", "norms and dropouts are split along the sequence")
        )
    if layout.compression:
        variables.append(
            Variable("FORETRAIN_GRADIENT_COMPRESSION", layout.compression, "communication hook of DDP")
        )
    return tuple(variables)


def _library_switches(plan: LaunchPlan) -> tuple[Variable, ...]:
    variables = []
    if plan.layout.tensor > 1 or plan.layout.context > 1:
        purpose = "Megatron: keeps kernels in launch order so that communication overlaps (Hopper and older)"
        variables.append(Variable("CUDA_DEVICE_MAX_CONNECTIONS", "1", purpose))
    if plan.precision == "fp32":
        purpose = "NVIDIA libraries: real fp32, never TF32 in its place"
        variables.append(Variable("NVIDIA_TF32_OVERRIDE", "0", purpose))
    if plan.precision == "tf32":
        purpose = "PyTorch: TF32 for matrix products, as for convolutions by default"
        variables.append(Variable("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "1", purpose))
    return tuple(variables)
