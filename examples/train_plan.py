"""Train what `foretrain plan --emit LAUNCHER` planned: a script that follows the variables of a launch file.

    foretrain plan bert-base --samples 1000000 --epochs 3 --gpu a100 --emit torchrun --script train_plan.py
    bash bert-base-a100-sxm-40gb.sh

Model, sizes, strategy, batch, micro-batches, precision, weights, optimizer, LoRA, checkpointing and compile
are read from the `FORETRAIN_` variables (docs/plan.md lists them); what this script cannot run, it refuses.
It trains on one batch of random data: put your data into `train`. At the end process 0 prints what ran,
counted and looked up while it ran, as one line of JSON (`--report FILE` writes it).
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import DTensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

import foretrain
from foretrain.workloads.example import Example
from foretrain.workloads.lora import apply_lora, parse_lora
from foretrain.workloads.readers import ZooModel, read_model
from foretrain.workloads.tracing.step import equal_blocks
from foretrain.workloads.tracing.values import map_tensors
from foretrain.workloads.zoo import BuildOptions, build

HALF = {"bf16": torch.bfloat16, "fp16": torch.float16}
NAMES = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}
KERNELS = {
    "eager": SDPBackend.MATH, "flash": SDPBackend.FLASH_ATTENTION, "flash1": SDPBackend.FLASH_ATTENTION,
    "flash2": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION,
}  # fmt: skip
TORCH_OPTIMIZERS: dict[str, tuple[Any, dict[str, Any]]] = {
    "sgd": (torch.optim.SGD, {}),
    "momentum": (torch.optim.SGD, {"momentum": 0.9}),
    "nesterov": (torch.optim.SGD, {"momentum": 0.9, "nesterov": True}),
    "adam": (torch.optim.Adam, {}),
    "adamw": (torch.optim.AdamW, {}),
    "adamw-fused": (torch.optim.AdamW, {"fused": True}),
    "nadam": (torch.optim.NAdam, {}),
    "radam": (torch.optim.RAdam, {}),
    "adamax": (torch.optim.Adamax, {}),
    "adagrad": (torch.optim.Adagrad, {}),
    "adadelta": (torch.optim.Adadelta, {}),
    "rmsprop": (torch.optim.RMSprop, {}),
    "adafactor": (torch.optim.Adafactor, {}),
}
BITSANDBYTES = {
    "lion": "Lion", "adamw-8bit": "AdamW8bit", "lion-8bit": "Lion8bit", "paged-adamw": "PagedAdamW",
    "paged-adamw-8bit": "PagedAdamW8bit", "paged-lion-8bit": "PagedLion8bit",
}  # fmt: skip
NOT_RUN = (
    "TENSOR_PARALLEL", "PIPELINE_PARALLEL", "CONTEXT_PARALLEL", "EXPERT_PARALLEL", "GRADIENT_COMPRESSION",
    "OFFLOAD", "GRADIENT_RELEASE", "CUDA_GRAPHS", "FP8_SCALING",
)  # fmt: skip
"""What this script does not do: Megatron, torchtitan or DeepSpeed do."""
LOSS_SCALE = 1024.0
"""Where GradScaler starts; all along with FP16 weights, whose gradients it does not take."""


def setting(name: str, default: str = "") -> str:
    """A variable of the launch file."""
    return os.environ.get(f"FORETRAIN_{name}", default)


def is_on(name: str) -> bool:
    """A switch: 1 if it is on, absent if not."""
    return setting(name) == "1"


def number(name: str, default: int = 0) -> int:
    """A variable that is a whole number."""
    return int(setting(name) or default)


def main() -> None:
    """Train for the steps of the plan, or fewer."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=number("STEPS", 10), help="fewer steps, to try it")
    parser.add_argument("--report", type=Path, help="write what ran into this file, too")
    options = parser.parse_args()
    check_plan()
    is_distributed = "WORLD_SIZE" in os.environ
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    if is_distributed:
        distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    world = distributed.get_world_size() if is_distributed else 1
    samples = number("MICRO_BATCH") * number("MICRO_BATCHES") * world
    if setting("STRATEGY") != "dp" and samples != number("GLOBAL_BATCH"):
        sys.exit(f"{world} processes train {samples} samples a step, the plan {setting('GLOBAL_BATCH')}")
    report = train(options.steps)
    if not is_distributed or distributed.get_rank() == 0:
        print(json.dumps(report))
        if options.report is not None:
            options.report.write_text(json.dumps(report))
    if is_distributed:
        distributed.barrier()
        distributed.destroy_process_group()
        sys.stdout.flush()
        os._exit(0)  # gloo's threads may abort an interpreter that shuts down (PyTorch 2.13)


def check_plan() -> None:
    """Refuse what this script would run differently from the plan."""
    for name in NOT_RUN:
        if setting(name):
            sys.exit(f"FORETRAIN_{name}={setting(name)}: train_plan.py does not do this")
    for name, runs in {
        "PRECISION": ("fp32", "tf32", *HALF), "FRAMEWORK": ("pytorch", ""), "LOSS": ("eager", ""),
        "OPTIMIZER": (*TORCH_OPTIMIZERS, *BITSANDBYTES),
    }.items():  # fmt: skip
        if setting(name) not in runs:
            sys.exit(f"FORETRAIN_{name}={setting(name)}: train_plan.py runs {', '.join(filter(None, runs))}")
    if "quantised" in setting("LORA"):
        sys.exit("FORETRAIN_LORA: four-bit weights need bitsandbytes, which train_plan.py does not use")


# ---------------------------------------------------------------- the model


def build_example(device: torch.device) -> Example:
    """The model of the plan with one micro-batch: of the zoo, or FILE.py:callable."""
    source = read_model(setting("MODEL"))
    batch = number("MICRO_BATCH") * (number("DATA_PARALLEL", 1) if setting("STRATEGY") == "dp" else 1)
    sizes = BuildOptions(batch, number("SEQ_LEN") or None, number("IMAGE_SIZE") or None, real=True)
    torch.manual_seed(0)
    if isinstance(source, ZooModel):
        with device:
            return build(source.entry, sizes)
    if not source.has_data:
        sys.exit(f"{source.name} has no data to train on: give plan FILE.py:callable, or build it here")
    return source.example(sizes)


def prepare(module: nn.Module, device: torch.device) -> nn.Module:
    """Adapters, memory format, stored precision and recomputation, before the model is parallelised."""
    if setting("LORA"):
        apply_lora(module, parse_lora(setting("LORA")))
    module.to(device)
    if is_on("CHANNELS_LAST"):
        module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if setting("WEIGHTS") in HALF and number("ZERO_STAGE") < 2:
        module.to(HALF[setting("WEIGHTS")])
    if is_on("CHECKPOINT_ACTIVATIONS"):
        contexts: dict[str, Any] = {"context_fn": _keep_products} if is_on("SELECTIVE_CHECKPOINTING") else {}
        for block in equal_blocks(module):
            block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False, **contexts)
    if is_on("COMPILE"):
        module.compile()
    return module


def _keep_products() -> Any:
    aten = torch.ops.aten
    products = [aten.mm.default, aten.addmm.default, aten.bmm.default, aten.convolution.default]
    names = (name for name in dir(aten) if name.startswith("_scaled_dot_product_") and "backward" not in name)
    return create_selective_checkpoint_contexts([*products, *(getattr(aten, name).default for name in names)])


def parallelise(module: nn.Module, device: torch.device) -> nn.Module:
    """DataParallel, DistributedDataParallel (also for ZeRO-1) or FSDP (ZeRO-2 and -3) around the model."""
    if setting("STRATEGY") == "dp":
        return nn.DataParallel(module)
    if not distributed.is_initialized():
        return module
    stage = number("ZERO_STAGE")
    if stage < 2:
        return DistributedDataParallel(module)
    world, shard = distributed.get_world_size(), number("SHARD")
    shape, names = ((shard,), ("shard",)) if shard == world else ((world // shard, shard), ("copy", "shard"))
    mesh = init_device_mesh(device.type, shape, mesh_dim_names=names)
    half = HALF.get(setting("WEIGHTS"))
    reduced = torch.float32 if setting("GRADIENTS") == "fp32" else half
    policy = MixedPrecisionPolicy(param_dtype=half, reduce_dtype=reduced)
    for part in (*equal_blocks(module), module):
        fully_shard(part, mesh=mesh, mp_policy=policy, reshard_after_forward=stage == 3)
    return module


# ---------------------------------------------------------------- the optimizer


class MasterWeights(torch.optim.Optimizer):
    """An optimizer of FP32 copies of half-precision parameters."""

    def __init__(
        self, parameters: Iterable[nn.Parameter], build: Callable[..., torch.optim.Optimizer]
    ) -> None:
        super().__init__(parameters, {})
        self.parameters = [each for group in self.param_groups for each in group["params"]]
        self.masters = [nn.Parameter(each.detach().float()) for each in self.parameters]
        self.inner = build(self.masters)

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Gradients to FP32, the update, and the weights back."""
        del closure
        for parameter, master in zip(self.parameters, self.masters, strict=True):
            master.grad = None if parameter.grad is None else parameter.grad.float() / loss_scale()
        self.inner.step()
        with torch.no_grad():
            for parameter, master in zip(self.parameters, self.masters, strict=True):
                parameter.copy_(master)


def loss_scale() -> float:
    """The factor of the loss where FP16 weights have FP16 gradients; GradScaler does it elsewhere."""
    return LOSS_SCALE if setting("WEIGHTS") == "fp16" and number("ZERO_STAGE") < 2 else 1.0


def build_optimizer(parameters: Iterable[nn.Parameter], rate: float = 1e-3) -> torch.optim.Optimizer:
    """The optimizer of the plan: with FP32 copies of half-precision weights, its state sharded in ZeRO-1."""
    name = setting("OPTIMIZER")
    if name in BITSANDBYTES:
        chosen: Any = functools.partial(
            getattr(import_module("bitsandbytes.optim"), BITSANDBYTES[name]), lr=rate
        )
    else:
        kind, extra = TORCH_OPTIMIZERS[name]
        chosen = functools.partial(kind, lr=rate, **extra)
    trained = [each for each in parameters if each.requires_grad]
    if is_on("MASTER_WEIGHTS") and number("ZERO_STAGE") < 2:  # FSDP's own shards are the FP32 copies
        chosen = functools.partial(MasterWeights, build=chosen)
    if number("ZERO_STAGE") == 1 and distributed.is_initialized():
        return ZeroRedundancyOptimizer(trained, optimizer_class=chosen)
    optimizer: torch.optim.Optimizer = chosen(trained)
    return optimizer


# ---------------------------------------------------------------- the loop


def train(steps: int) -> dict[str, Any]:
    """The training loop, and what it ran."""
    device = (
        torch.device("cuda", torch.cuda.current_device())
        if torch.cuda.is_available()
        else torch.device("cpu")
    )
    example = build_example(device)
    module = prepare(example.module, device)
    watch = Watch(module)
    model = parallelise(module, device)
    optimizer = build_optimizer(model.parameters())
    is_scaled = setting("PRECISION") == "fp16" and loss_scale() == 1
    scaler = torch.amp.GradScaler(device.type, init_scale=LOSS_SCALE, enabled=is_scaled)
    inputs = map_tensors(example.inputs, lambda tensor: tensor.to(device))
    if setting("WEIGHTS") in HALF and not is_on("AUTOCAST"):
        half = HALF[setting("WEIGHTS")]
        inputs = map_tensors(inputs, lambda each: each.to(half) if each.is_floating_point() else each)
    micro_batches = number("MICRO_BATCHES", 1)
    losses = []
    for _ in range(steps):
        for index in range(micro_batches):
            with wait_with_reduction(model, index < micro_batches - 1):
                with autocast(device), attention(device):
                    output = model(*inputs)
                    if setting("WEIGHTS") in HALF and not number("ZERO_STAGE"):
                        output = map_tensors(output, lambda each: each.float())
                    loss = output if example.loss is None else example.loss(output)
                watch.note_micro_batch(example.samples)
                scaler.scale(loss * loss_scale() / micro_batches).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        watch.note_step()
        foretrain.step()
        losses.append(loss.item())
    return watch.report(model, optimizer, inputs) | {"first_loss": losses[0], "last_loss": losses[-1]}


def wait_with_reduction(model: nn.Module, waits: bool) -> contextlib.AbstractContextManager[Any]:
    """DDP exchanges gradients after the last micro-batch; ZeRO-2 and -3 reduce and shard those of each."""
    return (
        model.no_sync() if waits and isinstance(model, DistributedDataParallel) else contextlib.nullcontext()
    )


def autocast(device: torch.device) -> contextlib.AbstractContextManager[Any]:
    """Mixed precision where the plan uses autocast."""
    return torch.autocast(device.type, HALF.get(setting("PRECISION")), enabled=is_on("AUTOCAST"))


@contextlib.contextmanager
def attention(device: torch.device) -> Iterator[None]:
    """The attention kernel of the plan; `sdpa` leaves it to PyTorch, and a CPU has no choice."""
    kernel = KERNELS.get(setting("ATTENTION"))
    if kernel is None or device.type == "cpu":
        yield
        return
    with sdpa_kernel(kernel):
        yield


class Watch:
    """What a run really does: hooks and counters, not the variables it was given."""

    def __init__(self, module: nn.Module) -> None:
        self.samples = self.micro_batches = self.steps = self.block_runs = 0
        self.precision = ""
        self.is_sharded_after_forward = False
        self.module = module
        self.blocks = equal_blocks(module)
        kinds = nn.Linear | nn.Conv1d | nn.Conv2d
        first = next(part for part in module.modules() if isinstance(part, kinds))
        first.register_forward_hook(self._note_precision)
        if self.blocks:
            leaf = next(part for part in self.blocks[0].modules() if not list(part.children()))
            leaf.register_forward_pre_hook(self._note_run)
        self.weights = NAMES[next(module.parameters()).dtype]
        self.trained = sum(each.numel() for each in module.parameters() if each.requires_grad)

    def _note_precision(self, part: nn.Module, inputs: Any, output: torch.Tensor) -> None:
        del part, inputs
        self.precision = NAMES[output.dtype]

    def _note_run(self, part: nn.Module, inputs: Any) -> None:
        del part, inputs
        self.block_runs += 1

    def note_micro_batch(self, samples: int) -> None:
        """After the forward pass of a micro-batch."""
        self.samples += samples
        self.micro_batches += 1
        part = self.blocks[0] if self.blocks else self.module
        self.is_sharded_after_forward = isinstance(next(part.parameters()), DTensor)

    def note_step(self) -> None:
        """After an update."""
        self.steps += 1

    def report(self, model: nn.Module, optimizer: torch.optim.Optimizer, inputs: Any) -> dict[str, Any]:
        """What ran, on all processes."""
        samples, processes = torch.tensor(self.samples), 1
        if distributed.is_initialized():
            on_device = samples.to(next(model.parameters()).device)
            distributed.all_reduce(on_device)
            samples, processes = on_device, distributed.get_world_size()
        inner = getattr(optimizer, "optim", optimizer)
        updates = getattr(inner, "inner", inner)
        state: dict[str, Any] = next(iter(updates.state.values()), {})
        moments = [each.dtype for each in state.values() if torch.is_tensor(each) and each.dim()]
        is_sharded = isinstance(model, FSDPModule)
        stage = 3 if self.is_sharded_after_forward else 2
        return {
            "zero_stage": stage if is_sharded else int(isinstance(optimizer, ZeroRedundancyOptimizer)),
            "processes": processes,
            "global_batch": int(samples) // self.steps,
            "micro_batches": self.micro_batches // self.steps,
            "steps": self.steps,
            "precision": self.precision,
            "weights": self.weights,
            "master_weights": hasattr(inner, "inner") or (is_sharded and self.precision != self.weights),
            "optimizer": type(updates).__name__,
            "optimizer_state": NAMES[moments[0]] if moments else None,
            "runs_of_a_block": self.block_runs // self.micro_batches,
            "is_compiled": self.module._compiled_call_impl is not None,
            "trained_parameters": self.trained,
            "input_shape": list(inputs[0].shape),
        }


if __name__ == "__main__":
    main()
