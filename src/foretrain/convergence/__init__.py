"""WHEN IT IS GOOD ENOUGH: curve families, earlier runs, batch-size efficiency, steps to a target."""

from foretrain.convergence.curves import Curve, Direction, Target, curve_of, parse_target
from foretrain.convergence.forecast import Convergence, ConvergenceRequest, forecast
from foretrain.convergence.history import History

__all__ = [
    "Convergence",
    "ConvergenceRequest",
    "Curve",
    "Direction",
    "History",
    "Target",
    "curve_of",
    "forecast",
    "parse_target",
]
