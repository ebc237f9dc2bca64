"""Data parallel training with a parameter server, over torch.distributed.rpc.

Synchronous: each worker pushes its gradients and waits; when all have arrived the server averages them,
updates its parameters, and answers every worker with them. Asynchronous: the server updates its parameters
with the gradients of one worker and answers that worker at once. Messages go over the network card
(TensorPipe's `uv` and `basic`), never through shared memory.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import rpc
from torch.futures import Future

from foretrain.measuring.distributed_trials.models import repeat, trainable
from foretrain.workloads.tracing.optimizers import optimizer as optimizer_by_name

Step = Callable[[], None]
SERVER = "server"
_LEARNING_RATE, _MOMENTUM = 0.01, 0.9
_SMALL_RATE = 1e-3


def small_steps(name: str, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """The optimizer called `name` with a learning rate at which losses stay finite."""
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
        self.optimizer = None
        if self.parameters and optimizer is None:
            self.optimizer = torch.optim.SGD(self.parameters, _LEARNING_RATE, _MOMENTUM)
        elif self.parameters and optimizer is not None:
            self.optimizer = small_steps(optimizer, self.parameters)

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


def _hold(workers: int, parameters: list[Tensor], optimizer: str | None = None) -> None:
    _SERVED.hold(workers, parameters, optimizer)


@rpc.functions.async_execution  # type: ignore[untyped-decorator]
def _push(gradients: list[Tensor]) -> Future[list[Tensor]]:
    return _SERVED.push(gradients)


def exchange(data: Tensor) -> Tensor:
    """Push one tensor to a server that only echoes, together with all other workers."""
    return rpc.rpc_sync(SERVER, _push, args=([data],))[0]  # type: ignore[no-any-return]


def serve_echo() -> None:
    """Make the server echo; called by one worker before the others push."""
    rpc.rpc_sync(SERVER, _hold, args=(dist.get_world_size(), []))


def run(task: dict[str, Any]) -> dict[str, Any]:
    """Train one model synchronously; every worker reports the time of its steps."""
    step = server_step(task, wait_for_all=True)
    times = repeat(step, float(task["seconds"]), int(task["fewest"]), int(task["most"])).as_json()
    dist.barrier()
    return times


def server_step(task: dict[str, Any], wait_for_all: bool) -> Step:
    """A step of one worker; the first worker hands its parameters to the server."""
    made = trainable(task)
    parameters = [each for each in made.module.parameters() if each.requires_grad]
    if dist.get_rank() == 0:
        held = [parameter.detach() for parameter in parameters]
        pushes = dist.get_world_size() if wait_for_all else 1
        rpc.rpc_sync(SERVER, _hold, args=(pushes, held, task.get("optimizer")))
    dist.barrier()

    def step() -> None:
        made.module.zero_grad(set_to_none=True)
        made.loss(made.module).backward()
        gradients = [_gradient(parameter) for parameter in parameters]
        updated = rpc.rpc_sync(SERVER, _push, args=(gradients,))
        with torch.no_grad():
            torch._foreach_copy_(tuple(parameters), updated)

    return step


def _gradient(parameter: nn.Parameter) -> Tensor:
    """Its gradient; zeros where the loss does not depend on it."""
    return torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
