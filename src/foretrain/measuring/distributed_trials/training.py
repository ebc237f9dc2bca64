"""One trial of a campaign in a worker: train a model of the zoo with a strategy, and report every step.

`train` is the task; `STEPS` has what makes a step, by strategy: alone, DistributedDataParallel, the exchanges
of DataParallel, `fully_shard`, and a parameter server over torch.distributed.rpc. Models have real weights
and a fixed batch of made-up samples. The first worker decides how many steps all of them take.

A synchronous server waits for the gradients of all workers, averages them, updates its parameters and
answers every worker with them. An asynchronous one updates its parameters with the gradients of one worker
and answers that worker at once. Messages go over the network card (TensorPipe's `uv` and `basic`), never
through shared memory.
"""

from __future__ import annotations

import ctypes
import gc
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import rpc
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from foretrain.errors import InvalidRequest, UnknownName
from foretrain.workloads.tracing.optimizers import optimizer as optimizer_by_name
from foretrain.workloads.zoo import BuildOptions, build, zoo

Step = Callable[[], None]
SERVER = "server"
_AUTOCAST = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}
_LEARNING_RATE, _MOMENTUM = 0.01, 0.9
_SMALL_RATE = 1e-3
_FIRST, _FEWEST = 2, 3
"""Steps from which the length of a step is known, and the fewest that follow them."""


def train(task: dict[str, Any]) -> dict[str, Any]:
    """Train one model with a strategy of `STEPS`; every worker reports when each of its steps ran."""
    gc.collect()
    _give_back_memory()
    steps, seconds = task.get("steps"), float(task.get("seconds") or 0.0)
    step = STEPS[task["strategy"]](trainable(task), task.get("optimizer"))
    recorded = record(step, None if steps is None else int(steps), seconds)
    dist.barrier()
    return recorded.as_json()


def _give_back_memory() -> None:
    """Return freed memory to the system, so that a trial's memory does not show an earlier, larger one."""
    with suppress(OSError, AttributeError):  # not glibc
        ctypes.CDLL(None).malloc_trim(0)


class Trainable(NamedTuple):
    """A module with real weights, the blocks that FSDP shards one by one, and the loss of a fixed batch.

    `loss` takes the module as a strategy wrapped it.
    """

    module: nn.Module
    blocks: tuple[nn.Module, ...]
    loss: Callable[[nn.Module], Tensor]


def trainable(task: Mapping[str, Any]) -> Trainable:
    """The `model` of a task with a batch of `batch` samples, its sizes and its precision."""
    name = task["model"]
    if name not in zoo():
        raise UnknownName("model", name, zoo(), "Trials train models of the zoo.")
    torch.manual_seed(0)
    built = build(name, BuildOptions(task.get("batch"), task.get("seq_len"), task.get("image_size")))
    precision = _precision(str(task.get("precision") or "fp32"))

    def loss(module: nn.Module) -> Tensor:
        with precision():
            output = module(*built.inputs)
            return output if built.loss is None else built.loss(output)

    return Trainable(built.module, _repeated_blocks(built.module), loss)


def _precision(name: str) -> Callable[[], AbstractContextManager[Any]]:
    if name not in _AUTOCAST:
        raise InvalidRequest(f"precision {name!r} does not run on a CPU; choose {', '.join(_AUTOCAST)}")
    kind = _AUTOCAST[name]
    return nullcontext if kind is None else lambda: torch.autocast("cpu", dtype=kind)


def _repeated_blocks(module: nn.Module) -> tuple[nn.Module, ...]:
    """The members of the outermost stacks of modules with parameters; none where there is no such stack."""
    children = [child for child in module.children() if any(True for _ in child.parameters())]
    if isinstance(module, nn.ModuleList | nn.Sequential) and len(children) > 1:
        return tuple(children)
    return tuple(block for child in children for block in _repeated_blocks(child))


@dataclass(frozen=True)
class Recorded:
    """Start and end of every step, warm-up included, on the monotonic clock of the machine."""

    starts: list[float]
    ends: list[float]

    def as_json(self) -> dict[str, list[float]]:
        """As a message."""
        return asdict(self)


def record(run: Callable[[], object], steps: int | None, seconds: float, most: int = 2000) -> Recorded:
    """Run `steps` steps, or steps for about `seconds`; the first worker decides how many for all."""
    starts: list[float] = []
    ends: list[float] = []

    def timed() -> None:
        starts.append(time.monotonic())
        run()
        ends.append(time.monotonic())

    for _ in range(_FIRST):
        timed()
    left = (steps or 0) - _FIRST
    if steps is None:
        each = max(min(end - start for start, end in zip(starts, ends, strict=True)), 1e-6)
        left = agreed_count(int(min(max((seconds - (ends[-1] - starts[0])) / each, _FEWEST), most)))
    for _ in range(left):
        timed()
    return Recorded(starts, ends)


def agreed_count(count: int) -> int:
    """The first worker's count."""
    agreed = torch.tensor([count])
    dist.broadcast(agreed, 0)
    return int(agreed)


def single_step(made: Trainable, optimizer: str | None = None) -> Step:
    """A step of one worker without any exchange."""
    return _local_step(made, made.module, make_optimizer(optimizer, made.module.parameters()))


def ddp_step(made: Trainable, optimizer: str | None = None) -> Step:
    """A step under DistributedDataParallel."""
    module = DistributedDataParallel(made.module)
    return _local_step(made, module, make_optimizer(optimizer, module.parameters()))


def fsdp_step(made: Trainable, optimizer: str | None = None) -> Step:
    """A step under `fully_shard`, each block a unit."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard  # two seconds to import

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for block in made.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(made.module, mesh=mesh)
    return _local_step(made, made.module, make_optimizer(optimizer, made.module.parameters()))


def dp_step(made: Trainable, optimizer: str | None = None) -> Step:
    """A step with the exchanges of DataParallel: the first worker sends parameters and sums gradients."""
    parameters = list(made.module.parameters())
    updating = make_optimizer(optimizer, made.module.parameters())

    def step() -> None:
        for parameter in parameters:
            dist.broadcast(parameter.data, 0)
        updating.zero_grad(set_to_none=True)
        made.loss(made.module).backward()
        for parameter in parameters:
            if parameter.grad is not None:
                dist.reduce(parameter.grad, 0)
        if dist.get_rank() == 0:
            updating.step()

    return step


def _local_step(made: Trainable, module: nn.Module, optimizer: torch.optim.Optimizer) -> Step:
    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        made.loss(module).backward()
        optimizer.step()

    return step


def make_optimizer(name: str | None, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """The optimizer called `name`, at a learning rate at which losses stay finite; else SGD with momentum."""
    if name is None:
        return torch.optim.SGD(parameters, _LEARNING_RATE, _MOMENTUM)
    made = optimizer_by_name(name, parameters)
    for group in made.param_groups:
        group["lr"] = _SMALL_RATE
    return made


class _Server:
    """What the server keeps: parameters and their optimizer, and the pushes of the step under way."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.parameters: list[nn.Parameter] = []
        self.optimizer: torch.optim.Optimizer | None = None
        self.workers = 0
        self.pushed: list[list[Tensor]] = []
        self.answer: Future[list[Tensor]] = Future()

    def hold(self, workers: int, parameters: list[Tensor], optimizer: str | None) -> None:
        """Take over parameters and wait for `workers` pushes a step; without parameters, echo pushes."""
        self.workers, self.pushed, self.answer = workers, [], Future()
        self.parameters = [nn.Parameter(tensor) for tensor in parameters]
        self.optimizer = make_optimizer(optimizer, self.parameters) if self.parameters else None

    def push(self, gradients: list[Tensor]) -> Future[list[Tensor]]:
        """Take one worker's gradients; the answer comes when all are there."""
        with self.lock:
            answer = self.answer
            self.pushed.append(gradients)
            if len(self.pushed) < self.workers:
                return answer
            pushed, self.pushed, self.answer = self.pushed, [], Future()
            answer.set_result(self._updated(pushed))
        return answer

    def _updated(self, pushed: list[list[Tensor]]) -> list[Tensor]:
        if self.optimizer is None:
            return pushed[0]
        for index, parameter in enumerate(self.parameters):
            total = pushed[0][index]
            for gradients in pushed[1:]:
                total += gradients[index]
            parameter.grad = total.div_(self.workers)
        self.optimizer.step()
        return [parameter.detach() for parameter in self.parameters]


_SERVED = _Server()


def hold(workers: int, parameters: list[Tensor], optimizer: str | None = None) -> None:
    """Called by one worker on the server, before the others push."""
    _SERVED.hold(workers, parameters, optimizer)


@rpc.functions.async_execution  # type: ignore[untyped-decorator]
def push(gradients: list[Tensor]) -> Future[list[Tensor]]:
    """Called by every worker on the server; answered when the server has the pushes it waits for."""
    return _SERVED.push(gradients)


def server_step(made: Trainable, optimizer: str | None = None, *, wait_for_all: bool) -> Step:
    """A step of one worker; the first worker hands its parameters to the server."""
    parameters = [each for each in made.module.parameters() if each.requires_grad]
    if dist.get_rank() == 0:
        held = [parameter.detach() for parameter in parameters]
        pushes = dist.get_world_size() if wait_for_all else 1
        rpc.rpc_sync(SERVER, hold, args=(pushes, held, optimizer))
    dist.barrier()

    def step() -> None:
        made.module.zero_grad(set_to_none=True)
        made.loss(made.module).backward()
        gradients = [_gradient(parameter) for parameter in parameters]
        updated = rpc.rpc_sync(SERVER, push, args=(gradients,))
        with torch.no_grad():
            torch._foreach_copy_(tuple(parameters), updated)

    return step


def _gradient(parameter: nn.Parameter) -> Tensor:
    """Its gradient; zeros where the loss does not depend on it."""
    return torch.zeros_like(parameter) if parameter.grad is None else parameter.grad


STEPS: dict[str, Callable[[Trainable, str | None], Step]] = {
    "single": single_step,
    "ddp": ddp_step,
    "dp": dp_step,
    "fsdp": fsdp_step,
    "ps-sync": partial(server_step, wait_for_all=True),
    "ps-async": partial(server_step, wait_for_all=False),
}
"""What makes a step, by strategy; `single` is one worker alone."""
