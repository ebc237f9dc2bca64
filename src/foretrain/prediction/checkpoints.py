"""How often to save a job that may be interrupted, and what saving and redoing take.

With `save` the time δ a checkpoint takes and `between` the mean time M between interruptions, saving every

    τ = √(2 δ M)                                   (Young 1974)

seconds of work loses least. Interruptions that come at random times (exponentially) make each stretch of τ
and its checkpoint take, with restarts of R seconds that may be interrupted themselves,

    M · e^(R/M) · (e^((τ+δ)/M) - 1)                (Daly 2006, equation 13)

which is exact, and falls into four: the work τ, the checkpoint δ, the work and checkpoint done again
M (e^x - 1) - (τ + δ), and the restarts (e^x - 1) · M (e^(R/M) - 1), with x = (τ+δ)/M.

References: J. W. Young, "A first order approximation to the optimum checkpoint interval", CACM 17(9), 1974;
J. T. Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps", FGCS 22(3), 2006.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from foretrain.errors import InvalidRequest
from foretrain.units import format_duration

_HOPELESS = 50.0
"""A stretch of so many mean times between interruptions never ends: e^50 attempts."""


@dataclass(frozen=True, slots=True)
class Interrupted:
    """Expected seconds of work that is saved every `interval_seconds` and interrupted now and then."""

    interval_seconds: float
    checkpoints: float
    interruptions: float
    saving_seconds: float
    rework_seconds: float
    restart_seconds: float

    @property
    def overhead_seconds(self) -> float:
        """All that is not work."""
        return self.saving_seconds + self.rework_seconds + self.restart_seconds


def youngs_interval(save_seconds: float, between_seconds: float) -> float:
    """The work between checkpoints that loses least: √(2 δ M). Valid while δ is far below M."""
    if save_seconds < 0 or between_seconds <= 0:
        raise InvalidRequest(
            f"a checkpoint of {save_seconds:g} s and interruptions every {between_seconds:g} s: the first "
            "must be at least 0, the second above 0"
        )
    return math.sqrt(2 * save_seconds * between_seconds)


def interrupted(
    work_seconds: float,
    save_seconds: float,
    restart_seconds: float,
    between_seconds: float,
    interval_seconds: float,
) -> Interrupted:
    """What so much work takes beside itself, expected, if it is saved every `interval_seconds` of work.

    `between_seconds` may be infinite: then only the checkpoints remain. Work shorter than the interval is
    saved once, at its end.
    """
    if not interval_seconds > 0:
        raise InvalidRequest(f"checkpoints every {interval_seconds:g} s of work: give more than 0")
    interval = min(interval_seconds, work_seconds)
    stretches = work_seconds / interval if interval > 0 else 0.0
    saving = stretches * save_seconds
    if math.isinf(between_seconds):
        return Interrupted(interval, stretches, 0.0, saving, 0.0, 0.0)
    stretch = interval + save_seconds
    if max(stretch, restart_seconds) > _HOPELESS * between_seconds:
        raise InvalidRequest(
            f"{format_duration(stretch)} from one checkpoint to the next (restart "
            f"{format_duration(restart_seconds)}) with an interruption every "
            f"{format_duration(between_seconds)}: such a job never ends; save more often, start "
            "faster, or take machines that last longer"
        )
    attempts_lost = math.expm1(stretch / between_seconds)
    rework = stretches * (between_seconds * attempts_lost - stretch)
    restarts = stretches * attempts_lost * between_seconds * math.expm1(restart_seconds / between_seconds)
    return Interrupted(
        interval, stretches, stretches * attempts_lost, saving, max(0.0, rework), max(0.0, restarts)
    )
