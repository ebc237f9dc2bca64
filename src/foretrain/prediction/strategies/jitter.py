"""How much step times vary between devices alike, where nobody says it: fitted to public runs.

Every step waits for its slowest device (`stragglers`), so n devices take longer than the mean of one by the
expected maximum of n; runs of many networks on two to eight GPUs, told from one, teach by how much.
"""

from __future__ import annotations

import json
from functools import cache

from foretrain.facts.devices import Device
from foretrain.facts.sheets import data_root

FILE = "jitter.json"
_CPU = "cpu"


def usual_jitter(device: Device) -> float:
    """The coefficient of variation between devices of one step; none is known of CPUs."""
    return 0.0 if device.kind == _CPU else _fitted()


@cache
def _fitted() -> float:
    raw = json.loads((data_root() / "calibrations" / FILE).read_text(encoding="utf-8"))
    return float(raw["coefficient_of_variation"])
