"""What a policy is: a pure function from a state to a decision."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from foretrain.scheduling.decision import Decision
from foretrain.scheduling.state import State


class Policy(ABC):
    """Decides which jobs run where. Final classes are frozen dataclasses whose fields are its parameters.

    `decide` depends on the state and these parameters alone (a random one has a `seed`), so that the same
    question has the same answer, in a simulation as in life. `forecast_by` names a quicker policy that stands
    for a slow one in forecasts of many decisions.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    forecast_by: ClassVar[str] = ""

    @abstractmethod
    def decide(self, state: State) -> Decision:
        """What runs from now on."""
