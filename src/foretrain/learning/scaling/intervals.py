"""Step times of configurations with their 80 % intervals."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from foretrain.estimates import Quantiles
from foretrain.learning.scaling.columns import columns
from foretrain.learning.scaling.fitting import Fitted
from foretrain.learning.scaling.timings import Configuration

P90 = 1.2815515655446004
"""Standard deviations from the median of a normal distribution to its 90th percentile."""


def step_seconds(
    fitted: Fitted, configurations: Sequence[Configuration], reference_batch: float
) -> tuple[Quantiles, ...]:
    """p10, p50 and p90 of each; times are log-normal around the median."""
    at = columns(configurations, reference_batch)
    middle, wide = fitted.log_seconds(at), P90 * fitted.deviations(at)
    low, median, high = np.exp(middle - wide), np.exp(middle), np.exp(middle + wide)
    return tuple(Quantiles(*each) for each in zip(low.tolist(), median.tolist(), high.tolist(), strict=True))
