"""Several policies on the same problem, side by side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from foretrain.answers import Answer
from foretrain.scheduling.accounting import Outcome
from foretrain.units import format_money


@dataclass(frozen=True)
class Comparison(Answer):
    """The outcomes of policies in the order they were asked for; `bound_usd` is of the problem."""

    outcomes: tuple[Outcome, ...]
    bound_usd: float | None = None
    notes: tuple[str, ...] = ()

    @property
    def best(self) -> Outcome:
        """The outcome that costs least; the first of equal ones."""
        return min(self.outcomes, key=lambda each: each.total_usd)

    def to_dict(self) -> dict[str, Any]:
        """Each outcome as `simulate --json` prints it alone."""
        return {
            "best": self.best.policy,
            "bound_usd": self.bound_usd,
            "outcomes": [each.to_dict() for each in self.outcomes],
            "notes": list(self.notes),
        }

    def summary(self) -> tuple[tuple[str, str], ...]:
        """The cost under each policy."""
        return tuple(
            (each.policy, f"{format_money(each.total_usd)}, {each.late_jobs} jobs late")
            for each in self.outcomes
        )
