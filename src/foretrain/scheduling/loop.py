"""One loop for simulation and reality: a backend reports an event and its state, a policy decides.

while backend.next_event() is not None:
    backend.apply(policy.decide(backend.state()))
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from foretrain.errors import ForetrainError
from foretrain.scheduling.decision import Decision, violations
from foretrain.scheduling.state import State


class EventKind(Enum):
    """What calls for a decision."""

    SUBMITTED = "submitted"
    COMPLETED = "completed"
    FAILED = "failed"
    REPAIRED = "repaired"
    INTERRUPTED = "interrupted"
    PRICE_CHANGED = "price changed"
    ELAPSED = "time elapsed"
    WOKEN = "wake-up"


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened at a time; `subject` is a job, a node or a node type."""

    seconds: float
    kind: EventKind
    subject: str = ""


class Backend(ABC):
    """Where jobs run."""

    @abstractmethod
    def next_event(self) -> Event | None:
        """The next event, once it happened: a simulation jumps to it, a real backend waits for it.

        None when every job has ended (or can never run).
        """

    @abstractmethod
    def state(self) -> State:
        """The state right after the last event."""

    @abstractmethod
    def apply(self, decision: Decision) -> None:
        """Carry out a decision: start, stop, move and resize jobs, switch nodes on and off."""


class Policy(ABC):
    """Decides which jobs run where. Final classes are frozen dataclasses whose fields are its parameters.

    `decide` depends on the state and these parameters alone (a random one has a `seed`), so that the same
    question has the same answer, in a simulation and on a real cluster. `forecast_by` names a quicker policy
    that stands for a slow one in forecasts of many decisions.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    forecast_by: ClassVar[str] = ""

    @abstractmethod
    def decide(self, state: State) -> Decision:
        """What runs from now on."""


class InvalidDecision(ForetrainError):
    """A policy broke a rule: a bug of that policy, reported with the rule and the policy's name."""

    exit_code = 4
    http_status = 502


@dataclass(frozen=True, slots=True)
class LoopTurn:
    """One turn of the loop: the event, the decision, and how long deciding took."""

    event: Event
    state: State
    decision: Decision
    decision_seconds: float


def drive(
    backend: Backend, policy: Policy, observe: Callable[[LoopTurn], None] = lambda _: None, check: bool = True
) -> None:
    """Let a policy decide at every event until all jobs have ended."""
    while (event := backend.next_event()) is not None:
        state = backend.state()
        start = time.perf_counter()
        decision = policy.decide(state)
        seconds = time.perf_counter() - start
        broken = violations(state, decision) if check else ()
        if broken:
            raise InvalidDecision(f"policy {policy.name!r} made an invalid decision: {'; '.join(broken)}")
        backend.apply(decision)
        observe(LoopTurn(event, state, decision, seconds))
