"""Synchronous data parallel training with a parameter server, over torch.distributed.rpc.

Each worker pushes its gradients and waits; when all have arrived the server averages them, updates its
parameters, and answers every worker with them. Messages go over the network card (TensorPipe's `uv` and
`basic`), never through shared memory.
"""

from __future__ import annotations

import threading
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import rpc
from torch.futures import Future

from foretrain.measuring.distributed_trials.models import example, loss_of, repeat

SERVER = "server"
_LEARNING_RATE, _MOMENTUM = 0.01, 0.9


class _Server:
    """What the server keeps: parameters and their optimizer, and the pushes of the step under way."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.parameters: list[nn.Parameter] = []
        self.optimizer: torch.optim.Optimizer | None = None
        self.workers = 0
        self.pushed: list[list[Tensor]] = []
        self.answer: Future[list[Tensor]] = Future()

    def hold(self, workers: int, parameters: list[Tensor]) -> None:
        """Take over parameters; none means that pushes are only echoed."""
        self.workers, self.pushed, self.answer = workers, [], Future()
        self.parameters = [nn.Parameter(tensor) for tensor in parameters]
        self.optimizer = (
            torch.optim.SGD(self.parameters, _LEARNING_RATE, _MOMENTUM) if self.parameters else None
        )

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


def _hold(workers: int, parameters: list[Tensor]) -> None:
    _SERVED.hold(workers, parameters)


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
    """Train one model; every worker reports the time of its steps."""
    made = example(task["model"], int(task["batch"]))
    module = made.module
    parameters = list(module.parameters())
    if dist.get_rank() == 0:
        held = [parameter.detach() for parameter in parameters]
        rpc.rpc_sync(SERVER, _hold, args=(dist.get_world_size(), held))
    dist.barrier()

    def step() -> None:
        module.zero_grad(set_to_none=True)
        loss_of(module(made.inputs), made.targets).backward()
        gradients = [parameter.grad for parameter in parameters]
        updated = rpc.rpc_sync(SERVER, _push, args=(gradients,))
        with torch.no_grad():
            torch._foreach_copy_(tuple(parameters), updated)

    times = repeat(step, float(task["seconds"]), int(task["fewest"]), int(task["most"])).as_json()
    dist.barrier()
    return times
