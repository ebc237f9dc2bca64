"""Train a model for a few steps on the present device under torch.profiler, and without it.

The model is the one that is predicted: the same reader, sizes and options. Weights and inputs are random.
Each layer is annotated with its path, so that the trace has the names of the graph.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from foretrain.errors import InvalidRequest, MissingData
from foretrain.facts.devices import THIS_MACHINE, device
from foretrain.measuring.profiling.attribution import LAYER
from foretrain.measuring.profiling.kineto import STEP
from foretrain.measuring.stopwatch import OtherLoad

if TYPE_CHECKING:
    import torch

    from foretrain.workloads.example import Example
    from foretrain.workloads.workload import Workload

WARM_UP_STEPS = 2
_FEWEST, _MOST = 3, 30
_AUTOCAST = ("fp16", "bf16")

Progress = Callable[[str], None]
_IMAGE_DIMENSIONS = 4
_INITIAL_DEVIATION = 0.02
"""Of weights that exist only as shapes: near 0, as language models are initialised."""


@dataclass(frozen=True, slots=True)
class ProfiledRun:
    """What was run: where, how many steps, and the median step without and with the profiler.

    `other_cores` is how many cores other processes kept busy meanwhile.
    """

    device: str
    threads: int
    torch_version: str
    steps: int
    step_seconds: float
    profiled_step_seconds: float
    other_cores: float = 0.0

    @property
    def overhead_share(self) -> float:
        """Share by which the profiler lengthens a step."""
        return max(0.0, self.profiled_step_seconds / self.step_seconds - 1)


def present_device() -> str:
    """`cuda` where torch has a GPU, else `cpu`."""
    try:
        import torch
    except ModuleNotFoundError as error:
        raise MissingData("profile runs the model with torch: pip install foretrain[torch]") from error
    return "cuda" if torch.cuda.is_available() else "cpu"


def present_device_id() -> str:
    """foretrain's id of the present device: that of the GPU, or `here` for this machine's CPU."""
    if present_device() == "cpu":
        return THIS_MACHINE
    import torch

    return device(str(torch.cuda.get_device_name())).id


def profile_here(
    workload: Workload, trace: Path, seconds: float, progress: Progress = lambda _: None
) -> ProfiledRun:
    """Run steps of a workload for about `seconds`, and write the profiler's trace to a file."""
    import torch

    where = torch.device(present_device())
    load = OtherLoad((os.getpid(),))
    progress("building the model")
    step = _Step(workload, where)
    progress("warming up")
    first = _seconds(step)
    for _ in range(WARM_UP_STEPS - 1):
        first = _seconds(step)
    count = int(min(max(seconds / 2 / max(first, 1e-6), _FEWEST), _MOST))
    progress(f"timing {count} steps")
    plain = median([_seconds(step) for _ in range(count)])
    progress(f"profiling {count} steps")
    profiled = _profile_steps(step, count + 1, where, trace)
    return ProfiledRun(
        device=present_device_id(),
        threads=torch.get_num_threads(),
        torch_version=str(torch.__version__),
        steps=count,
        step_seconds=plain,
        profiled_step_seconds=median(profiled[1:]),
        other_cores=load.cores,
    )


def _seconds(step: _Step) -> float:
    start = time.perf_counter()
    step.run()
    step.wait()
    return time.perf_counter() - start


def _profile_steps(step: _Step, count: int, where: torch.device, trace: Path) -> list[float]:
    """Seconds of the profiled steps; the first one starts the profiler and does not count."""
    from torch.profiler import ProfilerActivity, profile, record_function

    activities = [ProfilerActivity.CPU]
    if where.type == "cuda":
        activities.append(ProfilerActivity.CUDA)
    taken = []
    with _quiet(), _annotate_calls(step.module), profile(activities=activities) as profiler:
        for number in range(count):
            with record_function(f"{STEP}#{number}"):  # a step without an update has no other mark
                taken.append(_seconds(step))
            profiler.step()
    profiler.export_chrome_trace(str(trace))
    return taken


@contextmanager
def _quiet() -> Iterator[None]:
    """Kineto writes to the standard error file when a profile starts and ends: discard it."""
    kept = os.dup(2)
    discarded = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(discarded, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(discarded)


@contextmanager
def _annotate_calls(module: torch.nn.Module) -> Iterator[None]:
    """Annotate every call of a module that has a path, by global forward hooks."""
    import torch

    paths = {id(part): path for path, part in module.named_modules() if path}
    running: list[Any] = []

    def enter(part: torch.nn.Module, _: Any) -> None:
        path = paths.get(id(part))
        annotation: Any = nullcontext() if path is None else torch.profiler.record_function(LAYER + path)
        annotation.__enter__()
        running.append(annotation)

    def leave(_: torch.nn.Module, __: Any, ___: Any) -> None:
        running.pop().__exit__(None, None, None)

    before = torch.nn.modules.module.register_module_forward_pre_hook(enter)
    after = torch.nn.modules.module.register_module_forward_hook(leave)
    try:
        yield
    finally:
        before.remove()
        after.remove()


class _Step:
    """One training step of a workload on a device, ready to run many times."""

    def __init__(self, workload: Workload, where: torch.device) -> None:
        from foretrain.workloads.tracing.optimizers import optimizer

        options = workload.options
        _refuse_unsupported(workload)
        self._where, self._options = where, options
        self._example = real_example(workload, where)
        self.module = self._example.module
        trained = [each for each in self.module.parameters() if each.requires_grad]
        self._optimizer = (
            optimizer(options.optimizer, trained)
            if options.optimizer is not None and not options.forward_only and trained
            else None
        )
        self._targets = _RealTensors(where)

    def run(self) -> None:
        """Forward, backward, update."""
        import torch

        with self._autocast(), torch.set_grad_enabled(not self._options.forward_only):
            output = self.module(*self._example.inputs)
            with self._targets.mode():
                loss = output if self._example.loss is None else self._example.loss(output)
        if self._options.forward_only:
            return
        (loss if loss.dim() == 0 else loss.sum()).backward()
        if self._optimizer is not None:
            self._optimizer.step()
            self._optimizer.zero_grad(set_to_none=True)
        else:
            self.module.zero_grad(set_to_none=True)

    def wait(self) -> None:
        """Until a GPU has finished."""
        if self._where.type == "cuda":
            import torch

            torch.cuda.synchronize()

    def _autocast(self) -> AbstractContextManager[Any]:
        import torch

        if self._options.precision not in _AUTOCAST:
            return nullcontext()
        half = torch.float16 if self._options.precision == "fp16" else torch.bfloat16
        return torch.autocast(self._where.type, half)


def _refuse_unsupported(workload: Workload) -> None:
    """Options that change the program in ways an eager run does not reproduce."""
    options = workload.options
    refused = {
        "compile": options.compile,
        "cuda_graphs": options.cuda_graphs,
        f"weights {options.weights}": options.weights != "fp32",
        "checkpoint_activations": options.checkpoint_activations,
        "lora": workload.lora is not None,
        "precision fp8": options.precision == "fp8",
    }
    asked = [name for name, is_asked in refused.items() if is_asked]
    if asked:
        raise InvalidRequest(
            f"profile runs the plain eager step, without {', '.join(asked)}; profile your own script with "
            "torch.profiler instead and read its trace with the option trace"
        )


def real_example(workload: Workload, where: torch.device) -> Example:
    """The model with weights, and its inputs, on a device."""
    import torch

    from foretrain.workloads.example import Example
    from foretrain.workloads.readers import ZooModel
    from foretrain.workloads.tracing.values import map_tensors
    from foretrain.workloads.zoo.catalogue import build

    torch.manual_seed(0)
    source = workload.source
    if isinstance(source, ZooModel):
        with torch.device(where):
            example = build(source.entry, workload.sizes)
    else:
        example = source.example(workload.sizes)
    if example.optimizers:
        raise InvalidRequest(
            f"{source.name} is a step function; profile runs a module, its loss and one optimizer. Profile "
            "your own script with torch.profiler instead and read its trace with the option trace"
        )
    module = _materialise(example.module, where)
    real = _RealTensors(where)
    inputs = map_tensors(example.inputs, real.of)
    if workload.options.channels_last:
        module = module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        inputs = map_tensors(inputs, _channels_last)
    if workload.options.forward_only:
        module.eval()
    return Example(module, inputs, example.loss, example.samples, example.tokens)


def _channels_last(tensor: torch.Tensor) -> torch.Tensor:
    import torch

    is_image = tensor.dim() == _IMAGE_DIMENSIONS
    return tensor.contiguous(memory_format=torch.channels_last) if is_image else tensor


def _materialise(module: torch.nn.Module, where: torch.device) -> torch.nn.Module:
    """A module on a device; weights that exist only as shapes are initialised as their layers do."""
    import torch

    if not any(each.is_meta for each in (*module.parameters(), *module.buffers())):
        return module.to(where)
    module.to_empty(device=where)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(0.0, _INITIAL_DEVIATION)
        for name, buffer in module.named_buffers():
            buffer.fill_(1 if name.endswith("running_var") else 0)
        for part in module.modules():
            reset = getattr(part, "reset_parameters", None)
            if callable(reset):
                reset()
    return module


class _RealTensors:
    """Real tensors for those that exist only as shapes: normal values, and 0 for integers."""

    def __init__(self, where: torch.device) -> None:
        self._where = where
        self._made: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def of(self, tensor: torch.Tensor) -> torch.Tensor:
        """The real tensor, the same one at every call."""
        import torch

        if not tensor.is_meta:
            return tensor if tensor.device == self._where else self._kept(tensor, tensor.to(self._where))
        if id(tensor) in self._made:
            return self._made[id(tensor)][1]
        shape, dtype = tuple(tensor.shape), tensor.dtype
        if dtype.is_floating_point:
            return self._kept(tensor, torch.randn(shape, device=self._where).to(dtype))
        return self._kept(tensor, torch.zeros(shape, dtype=dtype, device=self._where))

    def _kept(self, tensor: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
        return self._made.setdefault(id(tensor), (tensor, real))[1]

    def mode(self) -> AbstractContextManager[Any]:
        """While entered, calls get real tensors in place of shapes: targets that a loss closes over."""
        from torch.overrides import TorchFunctionMode

        from foretrain.workloads.tracing.values import map_tensors

        convert = self.of

        class RealArguments(TorchFunctionMode):
            """Replaces arguments."""

            def __torch_function__(
                self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
            ) -> Any:
                del types
                return func(*map_tensors(args, convert), **map_tensors(kwargs or {}, convert))

        return RealArguments()
