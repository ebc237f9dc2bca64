"""What can be wrong with a device sheet: broken references, values out of bounds, impossible physics.

`problems` only reports; the tests demand that the shipped sheets have none, and whoever writes a sheet of
their own can ask the same of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from functools import cache

from foretrain.facts.devices import Device
from foretrain.facts.sheets import Fact, Quantity, data_root, read_toml
from foretrain.registry import normalise

PEAK_TOLERANCE = 0.06
"""Room for rounded peaks and clocks, e.g. a peak quoted at a nearby clock."""
PCIE_LANES = frozenset({1, 4, 8, 16})
_TENSOR = "fp16_tensor_flop_per_second"


def problems(
    devices: Iterable[Device], quantities: Mapping[str, Quantity], sources: Container[str]
) -> list[str]:
    """One sentence for each thing that is wrong with these devices; none when all is well."""
    listed = list(devices)
    listed_problems = [
        f"{device.id}: {problem}"
        for device in listed
        for problem in (
            *(issue for fact in device.sheet for issue in _fact_problems(fact, quantities, sources)),
            *_missing(device, quantities),
            *_physics(device),
        )
    ]
    return [*listed_problems, *_family_problems(listed)]


def _fact_problems(fact: Fact, quantities: Mapping[str, Quantity], sources: Container[str]) -> Iterator[str]:
    if fact.source not in sources:
        yield f"{fact.quantity} cites {fact.source!r}, which no sources file lists"
    quantity = quantities.get(fact.quantity)
    if quantity is None:
        yield f"{fact.quantity} is no quantity of quantities.toml"
    elif isinstance(fact.value, str) != (quantity.unit == "text"):
        yield f"{fact.quantity} = {fact.value!r}, but its unit is {quantity.unit}"
    elif quantity.bounds and not isinstance(fact.value, str):
        low, high = quantity.bounds
        if not low <= fact.value <= high:
            yield f"{fact.quantity} = {fact.value:g} is outside [{low:g}, {high:g}] {quantity.unit}"


def _missing(device: Device, quantities: Mapping[str, Quantity]) -> Iterator[str]:
    for quantity in quantities.values():
        if device.kind in quantity.required and not device.sheet.has(quantity.name):
            yield f"a {device.kind} must state {quantity.name}"


def _physics(device: Device) -> Iterator[str]:
    yield from _vector_peak(device)
    fp32, tensor = (_number(device, name) for name in ("fp32_flop_per_second", _TENSOR))
    if fp32 and tensor and tensor < fp32:
        yield f"FP16 tensor peak {tensor:g} is below the FP32 peak {fp32:g}"
    lanes = _number(device, "pcie_lanes")
    if lanes and lanes not in PCIE_LANES:
        yield f"{lanes:g} PCIe lanes; a device has {', '.join(map(str, sorted(PCIE_LANES)))}"
    yield from _memory(device)


def _vector_peak(device: Device) -> Iterator[str]:
    """FP32 peak = 2 · SMs · lanes per SM · boost clock, one fused multiply-add a lane and clock.

    A sheet may deviate where a note to one of the two facts says why ("... boost clock ...").
    """
    names = ("fp32_flop_per_second", "sm_count", "fp32_cores_per_sm", "boost_clock_hertz")
    peak, count, lanes, clock = (_number(device, name) for name in names)
    if not (peak and count and lanes and clock):
        return
    expected = 2 * count * lanes * clock
    facts = (device.sheet.fact("fp32_flop_per_second"), device.sheet.fact("boost_clock_hertz"))
    explained = any(fact and "boost clock" in fact.note for fact in facts)
    if abs(peak - expected) > PEAK_TOLERANCE * expected and not explained:
        yield (
            f"FP32 peak {peak:g}, but 2 x {count:g} SMs x {lanes:g} lanes x {clock:g} Hz = {expected:g}; "
            "correct one of them, or say in a note why the boost clock does not give the peak"
        )


def _memory(device: Device) -> Iterator[str]:
    technology, bandwidth = device.sheet.fact("memory_type"), _number(device, "memory_bytes_per_second")
    if technology is None:
        return
    bounds = _bandwidth_bounds().get(str(technology.value))
    if bounds is None:
        yield f"memory type {technology.value!r} is not in memory_types.toml"
    elif bandwidth and not bounds[0] <= bandwidth <= bounds[1]:
        yield (
            f"memory_bytes_per_second = {bandwidth:g} is outside [{bounds[0]:g}, {bounds[1]:g}] "
            f"for {technology.value}"
        )


def _family_problems(devices: list[Device]) -> Iterator[str]:
    """A family of several variants must not name one of them: `a100` would be ambiguous."""
    variants = Counter(normalise(device.family) for device in devices)
    for device in devices:
        for name in (device.id, *device.aliases):
            if variants[normalise(name)] > 1:
                yield f"{device.id}: {name!r} is also the name of a family of {variants[normalise(name)]}"


@cache
def _bandwidth_bounds() -> Mapping[str, tuple[float, float]]:
    entries = read_toml(data_root() / "memory_types.toml")
    return {name: tuple(entry["bandwidth_bounds"]) for name, entry in entries.items()}


def _number(device: Device, quantity: str) -> float | None:
    fact = device.sheet.fact(quantity)
    return None if fact is None or isinstance(fact.value, str) else fact.value
