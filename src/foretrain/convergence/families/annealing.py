"""Loss under a learning-rate schedule: what is still to come when the rate falls.

Reference: H. Tissue, V. Wang, L. Wang, "Scaling Law with Learning Rate Annealing", arXiv:2408.11029:
L = L0 + A S1^-α - C S2, S1 the area under the rate, S2 the annealing area with momentum.
"""

from __future__ import annotations

import numpy as np

from foretrain.convergence.curves import Floats
from foretrain.convergence.families._base import Family, Span, mesh
from foretrain.convergence.schedules import Constant, annealing_areas

_SHARE_LEAST = 1e-4


class Annealing(Family):
    """L0 + A (S1^-α + γ (S2max - S2)), for a planned end and a schedule.

    Early in a run S2 has hardly moved and cannot be fitted to the points, so its size is tied to that of the
    first term: γ is a shape, searched over a bounded range. γ = 0 is the power law over the area of the rate.
    """

    name = "annealing"
    equation = "L0 + A (S1^-alpha - gamma S2)"
    needs_schedule = True

    def shapes(self) -> Floats:
        """Exponent, and the weight of annealing against the first term."""
        return mesh(np.geomspace(0.15, 1.5, 10), np.array([0.0, 0.5, 1.0, 2.0, 4.0, 8.0]))

    def basis(self, steps: Floats, shapes: Floats, span: Span) -> Floats:
        planned = span.planned_steps or span.last_step
        first, second = annealing_areas(span.schedule or Constant(), steps / planned)
        end = annealing_areas(span.schedule or Constant(), np.ones(1))[1]
        power = np.maximum(first, _SHARE_LEAST)[None, :] ** -shapes[:, :1]
        return power + shapes[:, 1:2] * (end - second)[None, :]
