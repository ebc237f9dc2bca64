"""GPUs with round figures, for numbers a reader can check by hand."""

from __future__ import annotations

from foretrain.facts.devices import Device
from foretrain.facts.sheets import Fact, FactKind, Sheet
from foretrain.testing.operator_models import doubled as doubled


def plain_device(
    flop_per_second: float = 1.0,
    bytes_per_second: float = 1.0,
    sm_count: float = 1,
    clock_hertz: float = 1.0,
    l2_bytes: float = 1.0,
) -> Device:
    """A device of which only what the operator models need is known."""
    figures: dict[str, float | str] = {
        "fp32_flop_per_second": flop_per_second,
        "fp16_tensor_flop_per_second": 8 * flop_per_second,
        "memory_bytes_per_second": bytes_per_second,
        "sm_count": sm_count,
        "boost_clock_hertz": clock_hertz,
        "l2_bytes": l2_bytes,
        "tdp_watts": 100.0,
    }
    facts = tuple(Fact(name, value, FactKind.ASSUMED, "test") for name, value in figures.items())
    return Device(
        "plain", "Plain", "gpu", "nvidia", "plain", "plain", "pcie", "board", (), Sheet("plain", facts)
    )
