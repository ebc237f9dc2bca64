"""The recorder: a dispatch mode that writes down every operator call and the life of every buffer.

`SETTINGS` lists, by operator, the non-tensor arguments that matter for its cost. `LAYOUT` is no argument: it
says whether the operator's images lie channels-last in memory.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from foretrain.workloads.graph import NO_TENSOR, Buffer, Call, Nature, Phase, Role, Spec

LAYOUT = "channels_last"
WINDOW = "window"
"""Left out where attention has none."""
_CONVOLUTION = (
    "stride",
    "padding",
    "dilation",
    "transposed",
    "output_padding",
    "groups",
    "output_mask",
    LAYOUT,
)
_POOLING = ("kernel_size", "stride", "padding", "output_size", "ceil_mode", LAYOUT)
_ALONG = ("dim", "dims", "keepdim")

SETTINGS: Mapping[str, tuple[str, ...]] = {
    "aten.convolution": _CONVOLUTION,
    "aten.convolution_backward": _CONVOLUTION,
    "aten.max_pool2d_with_indices": _POOLING,
    "aten.max_pool2d_with_indices_backward": _POOLING,
    "aten.max_pool3d_with_indices": _POOLING,
    "aten.max_pool3d_with_indices_backward": _POOLING,
    "aten.avg_pool2d": _POOLING,
    "aten.avg_pool2d_backward": _POOLING,
    "aten.avg_pool3d": _POOLING,
    "aten.avg_pool3d_backward": _POOLING,
    "aten._adaptive_avg_pool2d": _POOLING,
    "aten._softmax": _ALONG,
    "aten._log_softmax": _ALONG,
    "aten._softmax_backward_data": _ALONG,
    "aten._log_softmax_backward_data": _ALONG,
    "aten.native_layer_norm": ("normalized_shape",),
    "aten.native_layer_norm_backward": ("normalized_shape", "output_mask"),
    "aten.native_group_norm": ("group",),
    "aten.native_group_norm_backward": ("group", "output_mask"),
    "aten.native_batch_norm": ("training", LAYOUT),
    "aten.native_batch_norm_backward": ("train", "output_mask", LAYOUT),
    "aten.sum": _ALONG,
    "aten.mean": _ALONG,
    "foretrain.attention": ("causal", "algorithm", "dropout", WINDOW),
    "foretrain.attention_backward": ("causal", "algorithm", "dropout", WINDOW),
    "foretrain.softmax": _ALONG,
    "foretrain.softmax_backward": _ALONG,
    "foretrain.rnn": ("mode", "layers", "bidirectional", "hidden", "batch_first"),
    "foretrain.rnn_backward": ("mode", "layers", "bidirectional", "hidden", "batch_first"),
}


_IMAGE_DIMS = 4
_HOST_ONLY = {
    "aten._local_scalar_dense",
    "aten.lift_fresh",
    "aten.is_same_size",
    "aten.sym_size",
    "aten.detach",
}


class Recorder(TorchDispatchMode):
    """Records calls on tensors of one device; calls on host scalars are not device work and are left out."""

    def __init__(self, device: torch.device, modules: ModuleStack) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._device = device
        self._modules = modules
        self._specs: dict[Spec, int] = {}
        self._buffer_of: dict[int, int] = {}
        self._spec_of_buffer: list[int] = []
        self._born: list[int] = []
        self._dies: dict[int, int] = {}
        self._roles: dict[int, tuple[Role, str]] = {}
        self._watchers: dict[int, weakref.ref[torch.UntypedStorage]] = {}
        self._call_of_sequence: dict[int, int] = {}
        self.calls: list[Call] = []
        self.phase = Phase.FORWARD

    # What exists before the step

    def own(self, tensor: torch.Tensor, role: Role, name: str = "") -> None:
        """Make a tensor known with its role; call before recording starts, or when a gradient appears."""
        if tensor.device.type != self._device.type:
            return
        buffer = self._buffer(tensor)
        self._roles.setdefault(buffer, (role, name))

    def owned(self, tensor: torch.Tensor) -> Role | None:
        """The role a tensor's memory was given, if any."""
        buffer = self._buffer_of.get(tensor.untyped_storage()._cdata)
        return self._roles[buffer][0] if buffer in self._roles else None

    # Recording

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        sequence = torch.autograd._get_sequence_nr() - 1  # type: ignore[attr-defined]
        result = func(*args, **kwargs)
        namespace_and_name = f"{func.namespace}.{func._opname}"
        if func.namespace not in {"profiler", "prim"} and namespace_and_name not in _HOST_ONLY:
            self._record(func, namespace_and_name, sequence, args, kwargs, result)
        return result

    def _record(
        self, func: Any, name: str, sequence: int, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
    ) -> None:
        arguments = [*args, *kwargs.values()]
        inputs = list(_tensors(arguments, self._device))
        outputs = list(_tensors([result], self._device))
        if not any(tensor is not None for tensor in (*inputs, *outputs)):
            return
        index = len(self.calls)
        node: Any = torch._C._current_autograd_node()  # None outside the backward pass
        forward = None
        if self.phase is Phase.BACKWARD and node is not None and not self._modules.inside:
            forward = self._call_of_sequence.get(node._sequence_nr())
        elif self.phase is Phase.FORWARD or self._modules.inside:
            self._call_of_sequence.setdefault(sequence, index)
        reads = tuple(self._buffer(tensor) for tensor in inputs if tensor is not None)
        writes = tuple(self._buffer(tensor) for tensor in outputs if tensor is not None)
        self.calls.append(
            Call(
                name=name,
                phase=self.phase,
                module=self.calls[forward].module if forward is not None else self._modules.path,
                inputs=tuple(self._spec(tensor) for tensor in inputs),
                outputs=tuple(self._spec(tensor) for tensor in outputs),
                reads=tuple(dict.fromkeys(reads)),
                writes=_find_written(func, args, kwargs, writes, self._buffer, self._device),
                settings=_settings(func, name, args, kwargs),
                nature=_nature(func),
                forward=forward,
                recomputed=self.phase is Phase.BACKWARD and self._modules.inside,
            )
        )

    def _spec(self, tensor: torch.Tensor | None) -> int:
        if tensor is None:
            return NO_TENSOR
        spec = Spec(tuple(tensor.shape), _dtype_name(tensor.dtype))
        return self._specs.setdefault(spec, len(self._specs))

    def _buffer(self, tensor: torch.Tensor) -> int:
        storage = tensor.untyped_storage()
        key = storage._cdata
        known = self._buffer_of.get(key)
        if known is not None:
            return known
        buffer = len(self._born)
        self._buffer_of[key] = buffer
        self._born.append(len(self.calls))
        whole = tensor.numel() * tensor.itemsize == storage.nbytes()
        shape = tuple(tensor.shape) if whole else (storage.nbytes() // tensor.itemsize,)
        spec = Spec(shape, _dtype_name(tensor.dtype))
        self._spec_of_buffer.append(self._specs.setdefault(spec, len(self._specs)))
        self._watchers[buffer] = weakref.ref(storage, self._on_free(buffer, key))
        return buffer

    def _on_free(self, buffer: int, key: int) -> Callable[[object], None]:
        def freed(_: object) -> None:
            self._dies[buffer] = len(self.calls) - 1
            self._buffer_of.pop(key, None)
            self._watchers.pop(buffer, None)

        return freed

    # The result

    @property
    def specs(self) -> tuple[Spec, ...]:
        """The distinct specs, in order of index."""
        return tuple(self._specs)

    def spec_index(self, tensor: torch.Tensor) -> int:
        """The index of a tensor's spec, adding it if new."""
        return self._spec(tensor)

    def buffers(self) -> Iterator[Buffer]:
        """All buffers; those still alive live beyond the step. Unowned ones are activations if they
        outlive a forward pass, else temporaries."""
        ends = self._forward_ends()
        cast_weights = self._cast_weights()
        for buffer, (born, spec) in enumerate(zip(self._born, self._spec_of_buffer, strict=True)):
            dies = self._dies.get(buffer, len(self.calls))
            role, name = self._roles.get(buffer, cast_weights.get(buffer, (Role.TEMPORARY, "")))
            if role is Role.TEMPORARY and any(born < end <= dies for end in ends):
                role = Role.ACTIVATION
            before = role in _BEFORE_THE_STEP
            yield Buffer(spec, -1 if before else born, len(self.calls) if before else dies, role, name)

    def _forward_ends(self) -> tuple[int, ...]:
        """The calls at which a backward pass begins; the end of the step where there is none."""
        phases = [call.phase for call in self.calls]
        begins = (
            index
            for index in range(1, len(phases))
            if phases[index] is Phase.BACKWARD and phases[index - 1] is not Phase.BACKWARD
        )
        return tuple(begins) or (len(phases),)

    def _cast_weights(self) -> dict[int, tuple[Role, str]]:
        """Half-precision copies of parameters, which mixed precision makes in the forward pass."""
        casts: dict[int, tuple[Role, str]] = {}
        for call in self.calls:
            if call.name == "aten._to_copy" and call.phase is Phase.FORWARD and call.reads:
                role, name = self._roles.get(call.reads[0], (Role.TEMPORARY, ""))
                if role is Role.PARAMETER:
                    casts[call.writes[0]] = (Role.CAST_WEIGHT, name)
        return casts


_BEFORE_THE_STEP = {Role.PARAMETER, Role.MODULE_BUFFER, Role.INPUT, Role.OPTIMIZER_STATE}


class ModuleStack:
    """Which module is running, by global forward hooks; also notes each leaf module's output."""

    def __init__(self, root: torch.nn.Module) -> None:
        self._paths = {id(module): path for path, module in root.named_modules()}
        self._stack: list[str] = []
        self._handles: list[Any] = []
        self.on_leaf: Callable[[str, torch.nn.Module, Any], None] = lambda *_: None

    @property
    def path(self) -> str:
        """Dotted path of the innermost running module; empty at the root."""
        return self._stack[-1] if self._stack else ""

    @property
    def inside(self) -> bool:
        """Whether any module's forward is running."""
        return bool(self._stack)

    def __enter__(self) -> ModuleStack:
        before = torch.nn.modules.module.register_module_forward_pre_hook(self._enter)
        after = torch.nn.modules.module.register_module_forward_hook(self._leave)
        self._handles = [before, after]
        return self

    def __exit__(self, *exception: object) -> None:
        for handle in self._handles:
            handle.remove()

    @contextmanager
    def unwound(self) -> Iterator[None]:
        """Forget, at the end, modules that were entered meanwhile but not left: a recomputation stops as soon
        as it has what it needs."""
        depth = len(self._stack)
        try:
            yield
        finally:
            del self._stack[depth:]

    def _enter(self, module: torch.nn.Module, _: Any) -> None:
        self._stack.append(self._paths.get(id(module), self.path))

    def _leave(self, module: torch.nn.Module, _: Any, output: Any) -> None:
        path = self._stack.pop()
        if not any(True for _ in module.children()):
            self.on_leaf(path, module, output)


def _tensors(values: Iterable[Any], device: torch.device) -> Iterator[torch.Tensor | None]:
    """The device's tensors in `values`, flattened; None keeps the place of an absent optional one."""
    for value in values:
        if isinstance(value, torch.Tensor):
            if value.device.type == device.type:
                yield value
        elif value is None:
            yield None
        elif isinstance(value, list | tuple) and value and isinstance(value[0], torch.Tensor | list | tuple):
            yield from _tensors(value, device)


def _find_written(
    func: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    outputs: tuple[int, ...],
    buffer_of: Callable[[torch.Tensor], int],
    device: torch.device,
) -> tuple[int, ...]:
    """Buffers a call writes: its outputs, and the arguments its schema says it changes in place."""
    schema = func._schema
    if not schema.is_mutable:
        return tuple(dict.fromkeys(outputs))
    changed: list[Any] = []
    for position, argument in enumerate(schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            changed.append(args[position] if position < len(args) else kwargs.get(argument.name))
    in_place = [buffer_of(tensor) for tensor in _tensors(changed, device) if tensor is not None]
    return tuple(dict.fromkeys([*outputs, *in_place]))


def _settings(func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    wanted = SETTINGS.get(name)
    if not wanted:
        return {}
    settings: dict[str, Any] = {}
    for position, argument in enumerate(func._schema.arguments):
        if argument.name in wanted:
            value = (
                args[position] if position < len(args) else kwargs.get(argument.name, argument.default_value)
            )
            if argument.name != WINDOW or value:
                settings[argument.name] = list(value) if isinstance(value, list | tuple) else value
    if LAYOUT in wanted and any(_is_channels_last(value) for value in args):
        settings[LAYOUT] = True
    return settings


def _is_channels_last(value: Any) -> bool:
    """Whether an argument is an image tensor that lies channels-last, and could not be taken for plain."""
    return (
        isinstance(value, torch.Tensor)
        and value.dim() == _IMAGE_DIMS
        and value.is_contiguous(memory_format=torch.channels_last)
        and not value.is_contiguous()
    )


@cache
def _nature(func: Any) -> Nature:
    if torch.Tag.pointwise in func.tags:
        return Nature.POINTWISE
    if func.is_view or func._opname in _VIEWS_BY_HABIT:
        return Nature.VIEW
    reduction = getattr(torch.Tag, "reduction", None)
    return Nature.REDUCTION if reduction is not None and reduction in func.tags else Nature.OTHER


_VIEWS_BY_HABIT = {
    "_unsafe_view",
    "_reshape_alias",
    "unsafe_split",
    "unsafe_chunk",
    "unsafe_split_with_sizes",
}
"""Operators that return a view without saying so in their schema."""


@cache
def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
