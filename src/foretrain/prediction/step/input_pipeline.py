"""The input pipeline of a step: reading, decoding and copying its samples.

    reading  = reads / random reads per second + bytes / sequential rate of the storage
    decoding = samples (or tokens) · decode time of one core / loader workers
    copying  = bytes of the inputs / achievable rate of the device's PCI Express link

A loader that prefetches runs the three stages concurrently, ahead of the device: the slowest stage determines
the input time, which counts only where it exceeds the time of the device. Without prefetching, or without
loader workers, the stages and the training step run one after the other.

Without a data set, inputs are assumed to be in pinned host memory: only the copy remains, which some
frameworks do within the step.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from foretrain.errors import InvalidRequest, MissingData
from foretrain.estimates import Estimate, Part, longest, sequence
from foretrain.facts.datasets import Dataset, Storage, datasets, storages
from foretrain.facts.devices import Device
from foretrain.facts.frameworks import frameworks
from foretrain.facts.links import link
from foretrain.facts.sheets import data_root, read_toml
from foretrain.prediction.options import InputOptions
from foretrain.workloads.graph import Graph, Role, once_per_graph

READING, DECODING, COPYING = "reading samples", "decoding samples", "copying to the device"
_LANES = 16  # link files are of x16; fewer lanes have their share of it


@dataclass(frozen=True)
class InputPipeline:
    """Seconds of each stage for the samples of one step, and the combined estimate."""

    reading_seconds: float
    decoding_seconds: float
    copying_seconds: float
    overlaps: bool
    estimate: Estimate

    @property
    def seconds(self) -> float:
        """The median time between the samples of consecutive steps."""
        return self.estimate.value

    def times(self, rounds: int) -> InputPipeline:
        """The pipeline for `rounds` micro-batches."""
        return InputPipeline(
            self.reading_seconds * rounds,
            self.decoding_seconds * rounds,
            self.copying_seconds * rounds,
            self.overlaps,
            self.estimate.scale(rounds),
        )


def estimate_input(
    graph: Graph, device: Device, options: InputOptions | None = None, readers: int = 1
) -> InputPipeline:
    """The input pipeline of a step of `graph` on `device`, whose storage is shared by `readers` devices."""
    options = options or InputOptions()
    dataset = None if options.dataset is None else datasets()[options.dataset]
    parts = []
    if dataset is None or dataset.is_read:
        parts.append(_copying(graph, device))
    if dataset is not None and dataset.is_read:
        parts += [
            _reading(graph, dataset, storages()[options.storage], readers),
            _decoding(graph, dataset, options),
        ]
    # With a data set its loader copies ahead; what a framework does without one is in its sheet.
    copies_in_step = dataset is None and frameworks()[graph.options.framework].copies_input_in_step
    overlaps = options.overlaps and not copies_in_step
    taken = [part for part in parts if part is not None and part.value > 0]
    by_name = {part.name: part.value for part in taken}
    return InputPipeline(
        by_name.get(READING, 0.0),
        by_name.get(DECODING, 0.0),
        by_name.get(COPYING, 0.0),
        overlaps,
        _together([Estimate("s", (part,)) for part in taken], overlaps),
    )


def _together(stages: list[Estimate], overlaps: bool) -> Estimate:
    if not stages:
        return Estimate("s", ())
    return longest(*stages) if overlaps else sequence(stages)


def _reading(graph: Graph, dataset: Dataset, storage: Storage, readers: int) -> Part:
    stored = _amount(graph, dataset, "bytes")
    reads = graph.samples * dataset.sheet.number("reads_per_sample")
    rate = storage.sheet.number("sequential_read_bytes_per_second")
    seconds = reads / storage.sheet.number("random_reads_per_second") + stored / rate
    return _part(READING, "reading", readers * seconds, f"storage {storage.id}")


def _decoding(graph: Graph, dataset: Dataset, options: InputOptions) -> Part:
    seconds = _amount(graph, dataset, "decode_seconds") / max(1, options.loader_workers)
    return _part(DECODING, "decoding", seconds, f"data set {dataset.id}")


def _amount(graph: Graph, dataset: Dataset, quantity: str) -> float:
    """A quantity of the data set for all samples of a step; the data set gives it per sample or per token."""
    if dataset.sheet.has(f"{quantity}_per_token"):
        if not graph.tokens:
            raise InvalidRequest(
                f"data set {dataset.id} consists of tokens, but the inputs of this model are not tokens"
            )
        return graph.tokens * dataset.sheet.number(f"{quantity}_per_token")
    return graph.samples * dataset.sheet.number(f"{quantity}_per_sample")


def _copying(graph: Graph, device: Device) -> Part | None:
    """Time of the copy to the device; None on a CPU, which needs none."""
    if device.is_cpu:
        return None
    name, rate = host_link(device)
    return _part(COPYING, "copying", input_bytes(graph) / rate, f"link {name}")


@once_per_graph
def input_bytes(graph: Graph) -> int:
    """Bytes of the inputs of a step, as they are copied to the device."""
    return sum(graph.specs[buffer.spec].bytes for buffer in graph.buffers if buffer.role is Role.INPUT)


def host_link(device: Device) -> tuple[str, float]:
    """The link between host and device, and its achievable bytes per second."""
    generation, lanes = (int(device.sheet.number(f"pcie_{what}")) for what in ("generation", "lanes"))
    full = link(f"pcie{generation}-x{_LANES}")
    return f"pcie{generation}-x{lanes}", full.achievable_bytes_per_second_per_direction * lanes / _LANES


def _part(name: str, stage: str, seconds: float, source: str) -> Part:
    spread = _spreads().get(stage)
    if spread is None:
        raise MissingData(f"input/spread.toml has no entry {stage}")
    return Part.within(name, seconds, source, spread["p10"], spread["p90"])


@cache
def _spreads() -> dict[str, Any]:
    return read_toml(data_root() / "input" / "spread.toml")
