"""MLPerf's logged runs of ResNet-50 and BERT by submission, and the reference's epochs by batch size."""

from __future__ import annotations

import csv
import gzip
import re
import statistics
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from foretrain.convergence.batch_size import BatchSizeLaw, fit_batch_size_law
from foretrain.errors import MissingData, UnknownName
from foretrain.facts.devices import device

RESNET, BERT = "resnet", "bert"
BENCHMARKS = {RESNET: "ResNet-50", BERT: "BERT"}
_SPELLINGS = {
    "NVIDIA A100-SXM-80GB": "a100-sxm-80gb",
    "NVIDIA A100-SXM-80GB CTS": "a100-sxm-80gb",
    "NVIDIA A100-SXM4-80GB (400W)": "a100-sxm-80gb",
    "NVIDIA A100-SXM-40GB": "a100-sxm-40gb",
    "NVIDIA H100-SXM-80GB": "h100-sxm",
    "NVIDIA H100-PCIe-80GB": "h100-pcie",
    "NVIDIA H200-SXM5-141GB": "h200-sxm",
}
_NETWORKS = {
    "EDR": "infiniband-edr",
    "HDR": "infiniband-hdr",
    "NDR": "infiniband-ndr",
    "BF3": "ethernet-400g",
}
_CARDS = re.compile(r"(\d+) ?x ?(?:[^,+;]*?\b)?(EDR|HDR|NDR|BF3)\b")
_LEAST_LOGGED = 1e5
"""BERT's last epoch is logged in samples, but some submissions log a count of passes."""


@dataclass(frozen=True, slots=True)
class Submission:
    """One system on one benchmark, with the times of its runs.

    `samples` are those it took to the target, `throughput` samples a second where it was logged; `network`
    is what joins the nodes, as `foretrain` writes links, where the submission says so.
    """

    round: str
    submitter: str
    system: str
    benchmark: str
    device_id: str
    nodes: int
    devices_per_node: int
    batch: int
    run_seconds: tuple[float, ...]
    samples: float
    throughput: float | None = None
    network: str | None = None

    @property
    def devices(self) -> int:
        """All devices."""
        return self.nodes * self.devices_per_node

    @property
    def seconds(self) -> float:
        """MLPerf's score: the mean of the runs without the fastest and the slowest."""
        ordered = sorted(self.run_seconds)
        return statistics.fmean(ordered[1:-1] if len(ordered) > 2 else ordered)

    @property
    def hardware(self) -> str:
        """The hardware, as people write it."""
        return f"{self.device_id}:{self.devices_per_node}" + (f"x{self.nodes}" if self.nodes > 1 else "")

    @property
    def name(self) -> str:
        """What to call it in a report."""
        what = f"{BENCHMARKS[self.benchmark]} batch {self.batch}"
        return f"{self.round} {self.submitter} {what} on {self.hardware}, {self.system}"

    @property
    def is_open(self) -> bool:
        """Whether it is of the open division, which need not train as the reference does."""
        return self.submitter in facts()["open"] or self.system.endswith("-open")


@dataclass(frozen=True)
class Read:
    """All submissions that can be predicted, and the others by the reason why they cannot."""

    submissions: tuple[Submission, ...]
    skipped: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@cache
def facts() -> dict[str, Any]:
    """What is known of the two benchmarks beside the logs."""
    return tomllib.loads((Path(__file__).parent / "mlperf_facts.toml").read_text(encoding="utf-8"))


def read(data: Path) -> Read:
    """The submissions of ResNet-50 and BERT, each once."""
    groups: dict[tuple[str, ...], list[dict[str, str]]] = {}
    for row in _rows(data / "mlperf" / "runs_v2.1_v4.0.csv.gz"):
        if row["bench"] in BENCHMARKS and row["status"] == "success":
            groups.setdefault((row["ver"], row["submitter"], row["system"], row["bench"]), []).append(row)
    submissions: dict[tuple[object, ...], Submission] = {}
    skipped: dict[str, list[str]] = {}
    for (_, submitter, system, benchmark), rows in groups.items():
        one = _submission(rows)
        if isinstance(one, str):
            skipped.setdefault(one, []).append(f"{submitter} {system} {benchmark}")
        elif (key := (one.round, one.benchmark, one.system, one.run_seconds)) in submissions:
            skipped.setdefault("the same runs published again", []).append(
                f"{submitter} {system} {benchmark}"
            )
        else:
            submissions[key] = one
    return Read(tuple(submissions.values()), {reason: tuple(names) for reason, names in skipped.items()})


def _submission(rows: Sequence[dict[str, str]]) -> Submission | str:
    """A submission, or why it cannot be predicted."""
    first = rows[0]
    if not first["accel"]:
        return "trained on CPUs"
    try:
        device_id = device(_SPELLINGS.get(first["accel"], first["accel"])).id
    except (UnknownName, MissingData):
        return f"no such device known: {first['accel']}"
    count, batch = int(first["n_acc"]), int(float(first["gbs"]))
    if batch % count:
        return f"a batch of {batch} does not share out over {count} devices"
    rates = [float(row["throughput"]) for row in rows if row["throughput"]]
    return Submission(
        round=first["ver"],
        submitter=first["submitter"],
        system=first["system"],
        benchmark=first["bench"],
        device_id=device_id,
        nodes=int(first["nodes"]),
        devices_per_node=int(first["acc_per_node"]),
        batch=batch,
        run_seconds=tuple(60 * float(row["minutes"]) for row in rows),
        samples=statistics.fmean(_samples(row) for row in rows),
        throughput=statistics.median(rates) if rates else None,
        network=network_named(first["hostnet"]),
    )


def _samples(row: Mapping[str, str]) -> float:
    if row["bench"] == RESNET:
        return float(row["last_epoch"]) * float(facts()[RESNET]["images"])
    logged = float(row["last_epoch"])
    return logged if logged > _LEAST_LOGGED else float(row["train_samples"])


def network_named(text: str) -> str | None:
    """The network between nodes that a submission describes, as LINK:COUNT; None if it does not say."""
    compute = text.partition("Compute:")[2] or text
    cards = _CARDS.search(compute)
    return f"{_NETWORKS[cards.group(2)]}:{cards.group(1)}" if cards else None


def reference_laws(data: Path) -> dict[str, BatchSizeLaw]:
    """Epochs of ResNet-50 and samples of BERT to the target over batch size, as the reference needs them.

    Each batch size by its newest round, the mean of its seeds.
    """
    newest: dict[tuple[str, float], tuple[str, list[float]]] = {}
    for row in _rows(data / "mlperf" / "reference_convergence_points.csv.gz"):
        if row["benchmark"] not in BENCHMARKS:
            continue
        key, when = (row["benchmark"], float(row["batch"])), row["round"]
        if key not in newest or when > newest[key][0]:
            newest[key] = (when, [])
        if when == newest[key][0]:
            newest[key][1].append(float(row["epochs_or_samples_to_target"]))
    laws = {}
    for benchmark in BENCHMARKS:
        points = {batch: seeds for (name, batch), (_, seeds) in sorted(newest.items()) if name == benchmark}
        laws[benchmark] = fit_batch_size_law(
            list(points), [statistics.fmean(seeds) for seeds in points.values()]
        )
    return laws


def _rows(path: Path) -> Iterator[dict[str, str]]:
    with gzip.open(path, "rt", newline="", encoding="utf-8") as stream:
        yield from csv.DictReader(stream)
