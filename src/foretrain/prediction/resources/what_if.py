"""The consumption of a step, and that of the same step with one change at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from foretrain.answers import Answer, Infeasible
from foretrain.prediction.resources.consumption import Consumption, words


@dataclass(frozen=True)
class WhatIf:
    """A change (`gpu=rtx2080ti`) and what is predicted with it."""

    change: str
    answer: Consumption | Infeasible


@dataclass(frozen=True)
class ConsumptionAnswer(Answer):
    """What `resources` answers."""

    consumption: Consumption
    what_if: tuple[WhatIf, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The answer as plain data; each change has all keys of the base."""
        changed = [
            {
                "change": each.change,
                **(
                    {"infeasible": str(each.answer)}
                    if isinstance(each.answer, Infeasible)
                    else each.answer.to_dict()
                ),
            }
            for each in self.what_if
        ]
        return {**self.consumption.to_dict(), "what_if": changed}

    def summary(self) -> tuple[tuple[str, str], ...]:
        """The base, and the computing of each change."""
        changes = tuple(
            (
                each.change,
                str(each.answer) if isinstance(each.answer, Infeasible) else words(each.answer.resources[0]),
            )
            for each in self.what_if
        )
        return (*self.consumption.summary(), *changes)
