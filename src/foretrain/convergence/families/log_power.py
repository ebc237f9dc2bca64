"""Power of the logarithm, slower than any power law."""

from __future__ import annotations

import numpy as np

from foretrain.convergence.curves import Floats
from foretrain.convergence.families._base import Family, Span, mesh


class LogPower(Family):
    """a ln(e + k/s)^-α + c (the logarithmic power form of T. Domhan et al., IJCAI 2015, in falling sense)."""

    name = "log-power"
    equation = "a ln(e + k/s)^-alpha + c"

    def shapes(self) -> Floats:
        """Exponent and the step at which the logarithm begins to bite."""
        return mesh(np.geomspace(0.25, 4.0, 10), np.array([0.003, 0.01, 0.03, 0.1, 0.3]))

    def basis(self, steps: Floats, shapes: Floats, span: Span) -> Floats:
        return np.log(np.e + steps[None, :] / (shapes[:, 1:2] * span.last_step)) ** -shapes[:, :1]
