"""Trace one training step: forward, loss, backward, optimizer.

With activation checkpointing, repeated blocks drop their activations and run again in the backward pass;
selective checkpointing keeps the outputs of products and attention and recomputes only what is between them
(`torch.utils.checkpoint.create_selective_checkpoint_contexts`, as torchtitan uses it). With gradient release
every gradient is applied and freed as soon as it is complete, as in PyTorch's tutorial "optimizer step in
backward" and torchtune's `optimizer_in_bwd`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial, wraps
from typing import Any

import torch
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
    set_checkpoint_early_stop,
)

from foretrain.errors import InvalidRequest
from foretrain.facts.frameworks import frameworks
from foretrain.workloads.example import Example
from foretrain.workloads.graph import Graph, Layer, Phase, Role
from foretrain.workloads.options import ResolvedOptions
from foretrain.workloads.tracing import whole_step
from foretrain.workloads.tracing.fused import ensure_shapes
from foretrain.workloads.tracing.optimizers import MasterOptimizer, cast_floats, own_state
from foretrain.workloads.tracing.optimizers import optimizer as build_optimizer
from foretrain.workloads.tracing.reality import Reality
from foretrain.workloads.tracing.recorder import ModuleStack, Recorder
from foretrain.workloads.tracing.values import RealValues, map_tensors, tensors_in, with_value

Contexts = tuple[AbstractContextManager[Any], AbstractContextManager[Any]]
"""What is entered for the forward pass of a block, and for its recomputation."""


def checkpoint_blocks(
    module: torch.nn.Module,
    again: Callable[[], AbstractContextManager[Any]],
    selective: bool = False,
    stops_early: bool = True,
) -> int:
    """Wrap every block of the model's repeated stacks; returns how many there are.

    `again` makes what is entered for every recomputation, which runs outside the forward pass. `selective`
    keeps the outputs of products and attention. `stops_early` ends a recomputation at the last tensor that
    the backward pass needs, as PyTorch does; Megatron and DeepSpeed run the whole block again.

    A stack is a `ModuleList` or `Sequential` with at least two children of one class that contain
    parameters; the outermost such stacks are taken, as Megatron, FSDP and the Hugging Face models do.
    """
    blocks = list(equal_blocks(module))
    if not blocks:
        raise InvalidRequest(
            "this model has no repeated blocks to checkpoint (no stack of equal modules); leave it out"
        )
    for block in blocks:
        _wrap(block, partial(_selective if selective else _whole, again), stops_early)
    return len(blocks)


def _whole(again: Callable[[], AbstractContextManager[Any]]) -> Contexts:
    return nullcontext(), again()


def _selective(again: Callable[[], AbstractContextManager[Any]]) -> Contexts:
    keeping, kept = create_selective_checkpoint_contexts(_policy)
    return keeping, _both(again(), kept)


@contextmanager
def _both(outer: AbstractContextManager[Any], inner: AbstractContextManager[Any]) -> Iterator[None]:
    with outer, inner:
        yield


_KEPT = frozenset(
    {"aten.mm", "aten.addmm", "aten.bmm", "aten.baddbmm", "aten.convolution", "foretrain.attention"}
)
"""The operators whose outputs selective checkpointing keeps."""


def _policy(context: Any, operator: Any, *_: Any, **__: Any) -> CheckpointPolicy:
    del context
    name = str(operator).rpartition(".")[0]
    return CheckpointPolicy.MUST_SAVE if name in _KEPT else CheckpointPolicy.PREFER_RECOMPUTE


def equal_blocks(module: torch.nn.Module) -> list[torch.nn.Module]:
    """The repeated blocks of a model: the entries of its stacks of equal modules, outermost first."""
    children = list(module.children())
    if isinstance(module, torch.nn.ModuleList | torch.nn.Sequential):
        kinds = {type(child) for child in children}
        weighty = all(any(True for _ in child.parameters()) for child in children)
        compound = all(any(True for _ in child.children()) for child in children)
        if len(children) >= 2 and len(kinds) == 1 and weighty and compound:
            nested = [block for child in children for block in equal_blocks(child)]
            is_stage = bool(nested) and not isinstance(module, torch.nn.ModuleList)
            return nested if is_stage else children
    return [block for child in children for block in equal_blocks(child)]


def _wrap(block: torch.nn.Module, contexts: Callable[[], Contexts], stops_early: bool) -> None:
    forward = block.forward

    @wraps(forward)
    def recomputed(*args: Any, **kwargs: Any) -> Any:
        with set_checkpoint_early_stop(stops_early):
            return checkpoint(
                forward,
                *args,
                use_reentrant=False,
                preserve_rng_state=False,
                context_fn=contexts,
                **kwargs,
            )

    block.forward = recomputed


Optimizer = torch.optim.Optimizer | MasterOptimizer
_AUTOCAST = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp8": torch.bfloat16}


def trace(
    example: Example, options: ResolvedOptions, device: str = "meta", with_values: bool = False
) -> Graph:
    """Record one step of `example` as a GPU would run it. On `meta` nothing is computed or allocated.

    `with_values` computes the forward pass beside it, for models whose shapes follow from their data.
    """
    values = RealValues() if with_values else None
    ensure_shapes()
    on_device = values.without_data if values else lambda tensor: with_value(tensor, device)
    module = _move(example.module, torch.device(device), example.optimizers, on_device)
    inputs = map_tensors(example.inputs, on_device)
    with whole_step.computing(values):
        if options.channels_last:
            module, inputs = _channels_last(module, inputs)
        if options.weights != "fp32":
            half = _AUTOCAST[options.weights]
            module, inputs = module.to(half), cast_floats(inputs, half)
    optimizer = None
    reality = Reality(_AUTOCAST.get(_autocast(options)), options.attention)
    if example.optimizers:
        whole_step.refuse_options(options)
        with _name_failures(None):
            whole_step.warm_up(example, inputs, reality, values, torch.device(device))
    elif options.optimizer is not None and not options.forward_only:
        optimizer = _ready_optimizer(options, module)
    with ModuleStack(module) as modules:
        recorder = Recorder(torch.device(device), modules)
        _own_what_exists(recorder, module, inputs, optimizer)
        whole_step.own_all(example, recorder)
        layers: list[Layer] = []
        modules.on_leaf = lambda path, leaf, output: _note(layers, recorder, path, leaf, output)
        if options.checkpoint_activations:
            again = partial(_again, reality, modules)
            stops_early = not frameworks()[options.framework].recomputes_whole_blocks
            checkpoint_blocks(module, again, options.selective_checkpointing, stops_early)
        with _autocast_flag(_autocast(options)), _name_failures(modules):
            if example.optimizers:
                whole_step.run(example, inputs, reality, values, recorder, torch.device(device))
            else:
                _run(example, module, inputs, optimizer, options, recorder, reality, values)
    return _graph(recorder, module, layers, example, options)


def _run(
    example: Example,
    module: torch.nn.Module,
    inputs: tuple[Any, ...],
    optimizer: Optimizer | None,
    options: ResolvedOptions,
    recorder: Recorder,
    reality: Reality,
    values: RealValues | None,
) -> None:
    if optimizer is not None and options.gradient_release:
        _release_gradients(module, optimizer)
        optimizer = None
    with whole_step.computing(values), reality, recorder:
        with torch.set_grad_enabled(not options.forward_only):
            output = module(*inputs)
            if options.weights != "fp32" and not options.half_outputs:
                output = cast_floats(output, torch.float32)
            loss = output if example.loss is None else example.loss(output)
        del output
        if options.forward_only:
            return
        reality.forget_casts()
        recorder.phase = Phase.BACKWARD
        if values is not None:
            values.is_paused = True
        torch.autograd.backward(_scalar(loss, example.loss is not None))
        del loss
    whole_step.own_gradients(module, recorder)
    if optimizer is not None:
        recorder.phase = Phase.OPTIMIZER
        with recorder:
            optimizer.step()


def _release_gradients(module: torch.nn.Module, optimizer: Optimizer) -> None:
    """Update each parameter in the backward pass, as soon as its gradient is complete, and free that."""

    def update(parameter: torch.Tensor) -> None:
        optimizer.step()  # no other parameter has a gradient now
        parameter.grad = None

    for parameter in module.parameters():
        if parameter.requires_grad:
            parameter.register_post_accumulate_grad_hook(update)


def _autocast(options: ResolvedOptions) -> str:
    return options.precision if options.casts else "fp32"


@contextmanager
def _again(reality: Reality, modules: ModuleStack) -> Iterator[None]:
    """A recomputation: as real as the forward pass, in its own autocast block, and free to stop half way."""
    with modules.unwound(), reality:
        try:
            yield
        finally:
            reality.forget_casts()


def _graph(
    recorder: Recorder,
    module: torch.nn.Module,
    layers: list[Layer],
    example: Example,
    options: ResolvedOptions,
) -> Graph:
    trained = [name for name, parameter in module.named_parameters() if parameter.requires_grad]
    buffers = tuple(recorder.buffers())
    return Graph(
        specs=recorder.specs,
        calls=tuple(recorder.calls),
        buffers=buffers,
        layers=tuple(layers),
        batch=example.samples,
        samples=example.samples,
        tokens=example.tokens,
        options=options,
        trained=tuple(trained),
        notes=tuple(example.notes),
        is_whole_step=bool(example.optimizers),
    )


def _scalar(loss: Any, has_loss: bool) -> torch.Tensor:
    """What is differentiated: the loss, which is one number, or the sum of the output of a bare module."""
    if not isinstance(loss, torch.Tensor):
        raise InvalidRequest(
            f"the loss is a {type(loss).__name__}, not a tensor; return (module, inputs, loss function) "
            "with a loss function that turns the model's output into one number"
        )
    if loss.numel() != 1 and has_loss:  # PyTorch: "grad can be implicitly created only for scalar outputs"
        raise InvalidRequest(
            f"the loss is a tensor of shape {tuple(loss.shape)}, and PyTorch differentiates one number only: "
            "return its mean (.mean()), as a loss function with `reduction='mean'` does"
        )
    return loss if loss.dim() == 0 else loss.sum()


def _ready_optimizer(options: ResolvedOptions, module: torch.nn.Module) -> Optimizer | None:
    """The optimizer with its state already made, as it is from the second step on."""
    assert options.optimizer is not None
    named = {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}
    trained = list(named.values())
    if not trained:
        return None
    if options.master_weights:
        return MasterOptimizer(partial(build_optimizer, options.optimizer), named, options.adds_up_in_fp32)
    optimizer = build_optimizer(options.optimizer, trained)
    for parameter in trained:
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return optimizer


def _own_what_exists(
    recorder: Recorder,
    module: torch.nn.Module,
    inputs: tuple[Any, ...],
    optimizer: Optimizer | None,
) -> None:
    for name, parameter in module.named_parameters():
        recorder.own(parameter, Role.PARAMETER, name)
    for name, buffer in module.named_buffers():
        recorder.own(buffer, Role.MODULE_BUFFER, name)
    for tensor in tensors_in(inputs):
        recorder.own(tensor, Role.INPUT)
    if isinstance(optimizer, MasterOptimizer):
        optimizer.own(recorder)
    elif optimizer is not None:
        for name, parameter in module.named_parameters():
            own_state(recorder, name, optimizer.state.get(parameter, {}))


def _note(layers: list[Layer], recorder: Recorder, path: str, leaf: torch.nn.Module, output: Any) -> None:
    """Write a layer down when it first runs, not when it runs again in the backward pass."""
    if recorder.phase is Phase.FORWARD:
        layers.append(_layer(recorder, path, leaf, output))


def _layer(recorder: Recorder, path: str, leaf: torch.nn.Module, output: Any) -> Layer:
    outputs = tuple(recorder.spec_index(tensor) for tensor in tensors_in(output))
    own = sum(parameter.numel() for parameter in leaf.parameters(recurse=False))
    return Layer(path, type(leaf).__name__, outputs, own)


def _move(
    module: torch.nn.Module,
    device: torch.device,
    optimizers: tuple[torch.optim.Optimizer, ...],
    on_device: Callable[[torch.Tensor], torch.Tensor],
) -> torch.nn.Module:
    """The module with its tensors on a device, shared ones still shared (which `.to` would untie).

    Optimizers are given the parameters that took the place of their own.
    """
    moved: dict[int, torch.Tensor] = {}
    for part in module.modules():
        for name, parameter in list(part._parameters.items()):
            if parameter is not None and parameter.device != device:
                new = moved.get(id(parameter))
                if new is None:
                    new = torch.nn.Parameter(on_device(parameter.detach()), parameter.requires_grad)
                    moved[id(parameter)] = new
                setattr(part, name, new)
        for name, buffer in list(part._buffers.items()):
            if buffer is not None and buffer.device != device:
                part._buffers[name] = moved.setdefault(id(buffer), on_device(buffer))
    for each in optimizers:
        for group in each.param_groups:
            group["params"] = [moved.get(id(parameter), parameter) for parameter in group["params"]]
    return module


def _channels_last(
    module: torch.nn.Module, inputs: tuple[Any, ...]
) -> tuple[torch.nn.Module, tuple[Any, ...]]:
    converted = module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return converted, tuple(
        value.contiguous(memory_format=torch.channels_last)
        if isinstance(value, torch.Tensor) and value.dim() == 4
        else value
        for value in inputs
    )


@contextmanager
def _autocast_flag(precision: str) -> Iterator[None]:
    """Let code that asks `torch.is_autocast_enabled()` hear what it would hear on a GPU."""
    half = _AUTOCAST.get(precision)
    if half is None:
        yield
        return
    before = torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda")
    torch.set_autocast_enabled("cuda", True)
    torch.set_autocast_dtype("cuda", half)
    try:
        yield
    finally:
        torch.set_autocast_enabled("cuda", before[0])
        torch.set_autocast_dtype("cuda", before[1])


@contextmanager
def _name_failures(modules: ModuleStack | None) -> Iterator[None]:
    """A failure inside the user's module, reported with the layer it happened in."""
    try:
        yield
    except (InvalidRequest, KeyboardInterrupt, MemoryError):
        raise
    except Exception as error:
        path = modules.path if modules is not None else ""
        where = f"in layer {path!r}" if path else "outside its layers"
        raise InvalidRequest(_explain(error, where)) from error


def _explain(error: Exception, where: str) -> str:
    first_line = str(error).strip().splitlines()[0] if str(error).strip() else ""
    sentence = f"the model failed {where}: {type(error).__name__}: {first_line}"
    reads_values = (
        "aten::_local_scalar_dense",
        "Cannot copy out of meta tensor",
        "aten::nonzero",
        "torch.nonzero()",
        "meta tensors",
    )
    if any(phrase in str(error) for phrase in reads_values):
        sentence += (
            "; its control flow depends on the data, which a trace without data cannot follow: "
            "run the step with example inputs (`trace` real, for FILE.py:callable and modules in Python), or "
            "replace the branch on tensor values (.item(), if tensor, nonzero) for the trace"
        )
    return sentence
