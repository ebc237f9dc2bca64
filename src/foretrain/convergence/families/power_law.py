"""Power law that comes down to a floor."""

from __future__ import annotations

import numpy as np

from foretrain.convergence.curves import Floats
from foretrain.convergence.families._base import Family, Span, mesh


class PowerLaw(Family):
    """a (k + s)^-α + c (J. Hestness et al., arXiv:1712.00409, over steps instead of samples)."""

    name = "power-law"
    equation = "a (k + s)^-alpha + c"

    def shapes(self) -> Floats:
        """Exponent 0.1 to 2 and offset, from nothing to a third of the log."""
        return mesh(np.geomspace(0.1, 2.0, 14), np.array([0.0, 0.01, 0.05, 0.3]))

    def basis(self, steps: Floats, shapes: Floats, span: Span) -> Floats:
        relative = steps[None, :] / span.last_step + shapes[:, 1:2]
        return relative ** -shapes[:, :1]
