"""Foretrain's own figure for every number, and its verdict on every finding, of the five documents.

One function a document. Whatever is predicted is predicted as the commands of `docs/origins.md` do; figures
of long suites are those of their last run (`history.csv`, `reports/`).
"""

from __future__ import annotations

import csv
import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Literal

import numpy as np
from calibration.datasets.neusight import gradients
from calibration.datasets.works import Convolution, product

import foretrain as ft
from foretrain.answers import Infeasible
from foretrain.facts.offers import search
from foretrain.facts.options import OfferQuery
from foretrain.facts.providers import billed_usd, providers
from foretrain.planning.guide.cells import CellFigures, machines_named
from foretrain.planning.guide.guide import BATCHES, Guide, GuideProblem, guide
from foretrain.planning.rent_or_buy import RentOrBuyTerms, rent_or_buy
from foretrain.planning.speedup import TimeAndCost, at_hourly_price, speedup_per_fold_of_cost
from foretrain.prediction.collectives.algorithms import (
    Medium,
    chain_broadcast_seconds,
    pipelined_broadcast_seconds,
)
from foretrain.prediction.heterogeneous.division import Worker, balance_batches
from foretrain.prediction.operators.per_layer import complexity
from foretrain.prediction.operators.pricing import table
from foretrain.prediction.strategies.pipeline.cuts import Chain, Cuts, StageLink, cut
from foretrain.scheduling.fleet_files import read_fleet
from foretrain.scheduling.generators import families, study_types
from foretrain.scheduling.policies import policies
from foretrain.scheduling.simulation import simulate
from foretrain.units import DAY, HOUR, MIB
from foretrain.workloads.ops import Direction, Kind, Work
from foretrain.workloads.options import WorkloadRequest
from foretrain.workloads.summary import TraceSummary, summarise
from foretrain.workloads.workload import graph_of, workload_of
from validation.driple_suite import predict_settings
from validation.history import FILE as HISTORY
from validation.origins_data import Ours, Paper

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "docs" / "examples" / "origins"
BURSTS = ROOT / "validation" / "data" / "resources" / "bursts.csv"
REPORTS = ROOT / "validation" / "reports"
ATTACHED = {"k80": "gcp:attached-1xK80", "2xk80": "gcp:attached-2xK80", "p100": "gcp:attached-1xP100"}
VOICE_BATCHES = (10, 20, 30, 50, 70, 100, 150, 200, 300, 400, 500, 600)
VOICE_SAMPLES = 2000
MNIST_SAMPLES = 60_000
MONTH = 365 / 12 * DAY
LEAST_GAIN = 1.1
"""An epoch that a batch of the list shortens by less than this factor gets no shorter."""
RULES = ("fifo", "edf", "priority")
POLICIES = ("auto", *RULES, *(f"{rule}-packed" for rule in RULES))
GAPS = (30, 45)
INSTANCES = 5
RENTED_NODES = 3


def compute(paper: Paper) -> Ours:
    """All figures and findings of a document."""
    return {
        "sanghvi": sanghvi,
        "cloud_slides": cloud_slides,
        "ardagna": ardagna,
        "driple": driple,
        "pani": pani,
    }[paper.id](paper)


# ---------------------------------------------------------------- Sanghvi: cost analysis


def sanghvi(paper: Paper) -> Ours:
    """Table I counted from its own times and predicted, delta, and the accounting of two jobs.

    Which network the table timed is not stated. The text after it counts epochs of "ResNet 50", on CIFAR the
    deepest of the usual family: 56 layers in the example of Keras, at the batch of 32 of Keras.
    """
    del paper
    network = workload_of(WorkloadRequest("cifar-resnet56", framework="keras"))
    machines = machines_named(tuple(ATTACHED.values()))
    answer = guide(GuideProblem((network,), machines, (32,), samples=50_000))
    epochs: dict[str, TimeAndCost] = {}
    figures: dict[str, float] = {}
    for name, machine, seconds in zip(ATTACHED, answer.machines, (87, 55, 48), strict=True):
        cell = figures_of(answer, machine.name, 32)
        assert cell.epoch is not None and cell.usd_per_epoch is not None and machine.usd_per_hour
        epochs[name] = TimeAndCost(cell.epoch.seconds.p50, cell.usd_per_epoch.p50)
        figures |= {
            f"{name}-price": machine.usd_per_hour,
            f"{name}-epoch-counted": at_hourly_price(seconds, machine.usd_per_hour).usd,
            f"{name}-seconds": epochs[name].seconds,
            f"{name}-usd": epochs[name].usd,
        }
    for name in ("2xk80", "p100"):
        figures[f"{name}-delta"] = speedup_per_fold_of_cost(epochs["k80"], epochs[name])
    # The paper rounds the cost of an epoch to five decimals before it multiplies.
    for name, seconds, usd, count in (("p100", 48, 0.01947, 94), ("2xk80", 55, 0.01375, 51)):
        epoch, took = TimeAndCost(seconds, usd), 25
        figures |= {
            f"{name}-job-usd": count * epoch.usd,
            f"{name}-job-seconds": count * epoch.seconds,
            f"{name}-actual-seconds": took * epoch.seconds,
            f"{name}-error": 100 * (count / took - 1),
        }
    a100 = search(OfferQuery(gpu="a100-sxm-40gb", count=1, cloud=("gcp",)))[0]
    figures["a100-month"] = a100.usd_per_hour * MONTH / HOUR
    (pick,) = answer.models[0].summary.picks
    best, fastest, cheapest = (
        answer.machines[place].name if place is not None else "none"
        for place in (pick.best_value, pick.fastest, pick.cheapest)
    )
    ours, optimus = (
        figure_of("seed_job", "K80 and P100, 50% seen, leave entry out", method, "mean")
        for method in ("foretrain", "Optimus")
    )
    findings = {
        "two-k80-best": (best == ATTACHED["2xk80"], f"best value: {best}"),
        "p100-fastest": (
            (fastest, cheapest) == (ATTACHED["p100"], ATTACHED["k80"]),
            f"fastest {fastest}, cheapest {cheapest}",
        ),
        "error-is-the-curve": (
            ours < optimus,
            f"time to 80 % on public curves: {ours:.0%} off with earlier runs as history, {optimus:.0%} with "
            "the curve of Optimus",
        ),
    }
    return Ours(figures, findings)


# ---------------------------------------------------------------- slides: multi-GPU training in the cloud


def cloud_slides(paper: Paper) -> Ours:
    """Rent or buy, bills, the two voice models and their chokes."""
    terms = RentOrBuyTerms(price_usd=8000, rent_usd_per_hour=1.5)
    standard, adjusted = rent_or_buy(terms), rent_or_buy(replace(terms, relative_performance=0.7))
    assert standard.break_even_hours and standard.break_even_years
    assert adjusted.break_even_hours and adjusted.break_even_years
    figures = {
        "adjusted-price": adjusted.break_even_hours * terms.rent_usd_per_hour,
        "adjusted-hours": adjusted.break_even_hours,
        "adjusted-years": adjusted.break_even_years,
        "standard-hours": standard.break_even_hours,
        "standard-years": standard.break_even_years,
    }
    billing = providers()["lambda"].billing_terms("gpu.4x", historical=True)
    for figure in paper.figures:
        if figure.key.startswith("bill-"):
            hours = float(figure.key.removeprefix("bill-"))
            figures[figure.key] = billed_usd(hours * HOUR, 1.50, billing)
    figures |= _printed_summary("linear", {1: 0, 3: 2, 5: 4, 7: 6})
    figures |= _printed_summary("conv", {1: 0, 4: 3, 7: 6, 10: 10, 12: 12})
    figures["epoch-mib"] = VOICE_SAMPLES * figures["linear-input"]
    moved = guide_of(("voice-linear",), ("lambda:gpu.4x",), (20,), samples=VOICE_SAMPLES, strategy="dp")
    epoch = figures_of(moved, "lambda:gpu.4x", 20).epoch
    assert epoch is not None
    figures |= {"epoch-batches": epoch.steps, "epoch-gigabytes": epoch.moved_bytes / 1e9}
    second = np.array([1.0])
    figures["chain-broadcast"] = float(chain_broadcast_seconds(second, 4, _plain_wire())[0])
    figures["pipelined-broadcast"] = float(pipelined_broadcast_seconds(second, 4, _plain_wire(), pieces=8)[0])
    for gpus in (1, 2, 3, 4):
        figures[f"bounce-{gpus}"] = _bounce(gpus)
    turing, pascal = (_step_seconds("resnet50", on, 64, "fp32") for on in ("rtx2080ti", "gtx1080ti"))
    figures["1080ti-less"] = 100 * (1 - turing / pascal)
    return Ours(figures, _voice_findings())


def _printed_summary(kind: str, layers: Mapping[int, int]) -> dict[str, float]:
    """The table that torchsummary prints: parameters by layer (its number to ours), and sizes in MiB."""
    summary = summary_of(f"voice-{kind}")
    inputs = 4 * 12_000 / MIB  # a clip of 1.5 s at 8 kHz, in FP32
    activations = summary.forward_backward_bytes_per_sample / MIB
    parameters = summary.parameter_bytes / MIB
    by_path = {layer.path: layer.parameters for layer in summary.layers}
    return {
        **{f"{kind}-layer-{printed}": by_path[str(place)] for printed, place in layers.items()},
        f"{kind}-parameters": summary.parameters,
        f"{kind}-input": inputs,
        f"{kind}-activations": activations,
        f"{kind}-parameters-mib": parameters,
        f"{kind}-total": inputs + activations + parameters,
    }


def _plain_wire() -> Medium:
    """A link of one byte a second, without any latency."""
    return Medium(
        bytes_per_second=1.0, copy_bytes_per_second=np.inf, startup_seconds=0.0, step_seconds=0.0,
        low_latency_share=1.0, bulk_startup_seconds=0.0, bulk_step_seconds=0.0, saturation_bytes=0.0,
        peer_bytes_per_second=1.0, peer_copy_bytes_per_second=np.inf, peer_startup_seconds=0.0,
        peer_step_seconds=0.0,
    )  # fmt: skip


@cache
def _voice() -> Guide:
    """Both models on one to four GTX 1080 Ti; of each count the batches that it divides."""
    return guide_of(
        ("voice-linear", "voice-conv"), ("gtx1080ti",), VOICE_BATCHES, counts=(1, 2, 3, 4),
        samples=VOICE_SAMPLES, strategy="dp",
    )  # fmt: skip


def _voice_epochs(model: int, gpus: int) -> dict[int, CellFigures]:
    """The cells of a model on some GPUs by batch."""
    cells = _voice().models[model].cells[gpus - 1]
    return {cell.batch: cell.figures for cell in cells if cell.figures is not None}


def _epoch_seconds(cell: CellFigures) -> float:
    assert cell.epoch is not None
    return cell.epoch.seconds.p50


def _bounce(gpus: int) -> float:
    """Samples per GPU of the first batch that no larger batch beats by `LEAST_GAIN`."""
    seconds = {batch: _epoch_seconds(cell) for batch, cell in _voice_epochs(1, gpus).items()}
    batch = next(batch for batch, each in seconds.items() if each < LEAST_GAIN * min(seconds.values()))
    return batch / gpus


def _voice_findings() -> dict[str, tuple[bool, str]]:
    linear, convolutional = ({gpus: _voice_epochs(model, gpus) for gpus in (1, 2, 3, 4)} for model in (0, 1))
    several = (2, 3, 4)
    speedups = [
        {
            (gpus, batch): _epoch_seconds(cells[1][batch]) / _epoch_seconds(cell)
            for gpus in several
            for batch, cell in cells[gpus].items()
        }
        for cells in (linear, convolutional)
    ]
    chokes = [
        [cell.choke for gpus in several for cell in cells[gpus].values()] for cells in (linear, convolutional)
    ]
    moved = np.array([(cell.epoch.moved_bytes, _epoch_seconds(cell)) for cell in linear[4].values()
                      if cell.epoch])  # fmt: skip
    correlation = float(np.corrcoef(moved[:, 0], moved[:, 1])[0, 1])
    verdicts = [model.summary.verdict for model in _voice().models]
    return {
        "linear-one-gpu": (
            max(speedups[0].values()) < 1,
            _speedups_in_words(speedups[0].values()),
        ),
        "linear-network-choke": _all_are(chokes[0], "network choke"),
        "linear-in-transfer": (
            correlation > 0.99,
            f"correlation {correlation:.4f} over the batch sizes on four GPUs",
        ),
        "conv-more-gpus": (
            min(speedups[1].values()) > 1,
            _speedups_in_words(speedups[1].values()),
        ),
        "conv-gpu-choke": _all_are(chokes[1], "GPU choke"),
        "rules": (
            "do not add any" in verdicts[0] and " pay " in verdicts[1] and "do not" not in verdicts[1],
            f"linear: {verdicts[0]}; convolutional: {verdicts[1]}",
        ),
    }


def _speedups_in_words(speedups: Collection[float]) -> str:
    return f"2 to 4 GPUs are {min(speedups):.2f} to {max(speedups):.2f} times as fast as one"


def _all_are(chokes: Sequence[str], wanted: str) -> tuple[bool, str]:
    right = sum(choke == wanted for choke in chokes)
    return right == len(chokes), f"{wanted} in {right} of {len(chokes)} cells"


# ---------------------------------------------------------------- Ardagna: regression and scheduling


def ardagna(paper: Paper) -> Ours:
    """Catalogue, operations of layers, slots of the prototype, and the rules that it compares with."""
    types = study_types()
    figures: dict[str, float] = {
        figure.key: types[figure.key].usd_per_hour for figure in paper.figures if figure.key in types
    }
    figures |= _layer_operations()
    predicted, real = (sum(column) for column in zip(*paper.slots, strict=True))
    figures |= {
        "slots-predicted": predicted,
        "slots-real": real,
        "slots-difference": 100 * (real - predicted) / real,
        "prototype-usd": _prototype_usd(),
    }
    costs = scheduling_costs()
    findings = {}
    for rule in RULES:
        pairs = [(cost["auto"], cost[rule]) for cost in costs.values()]
        wins = sum(auto < other for auto, other in pairs)
        share = statistics.median(auto / other for auto, other in pairs)
        findings[f"below-{rule}"] = (
            wins == len(pairs),
            f"on {wins} of {len(pairs)}; median cost {share:.0%} of it",
        )
    return Ours(figures, findings)


def _layer_operations() -> dict[str, float]:
    """The table of operations on layers that a reader can count."""

    def count(*works: Work) -> float:
        return sum(float(complexity(table([work]), work.kind)[0]) for work in works)

    def streamed(kind: Kind, direction: Direction) -> Work:
        dims = {"elements": 24, "rows": 4, "length": 6, "kernel": 4}
        return Work(kind, direction, dims, "float32", 24.0, 96.0, 96.0)

    layer = Convolution(batch=2, in_channels=3, out_channels=4, size=(8, 8), kernel=(3, 3), padding=(1, 1))
    linear = product(1, 1, 6, 8, "float32", is_linear=True)
    outputs = 2 * 8 * 8 * 4
    bias = Work(
        Kind.REDUCTION, Direction.BACKWARD, {"rows": 4, "length": outputs // 4}, "float32", float(outputs),
        4.0 * outputs, 4.0,
    )  # fmt: skip
    figures = {
        "conv-forward": count(layer.work(Direction.FORWARD)),
        # A sum is one of the four operations that the row of an elementwise layer counts.
        "conv-backward": count(*map(layer.work, (Direction.INPUT_GRADIENT, Direction.WEIGHT_GRADIENT)))
        + count(bias) / 4,
        "fc-forward": count(linear),
        "fc-backward": count(*gradients(linear)),
    }
    for name, kind in (
        ("loss", Kind.LOSS),
        ("norm", Kind.NORMALISATION),
        ("pool", Kind.POOLING),
        ("relu", Kind.ELEMENTWISE),
    ):
        for direction in (Direction.FORWARD, Direction.BACKWARD):
            figures[f"{name}-{direction.value}"] = count(streamed(kind, direction))
    return figures


def _prototype_usd() -> float:
    """The six jobs of the prototype under `auto`, each once, with predicted times."""
    answer = ft.simulate(
        str(EXAMPLES / "prototype_jobs.csv"), cluster=str(EXAMPLES / "prototype_cluster.yaml"), bound=False
    )
    return float(answer.to_dict()["total_usd"])


@cache
def scheduling_costs() -> dict[tuple[int, int], dict[str, float]]:
    """USD of each policy by mean gap and instance, on the nine machine types of the study."""
    fleet = read_fleet(EXAMPLES / "nine_types.yaml").fleet
    costs = {}
    for gap in GAPS:
        family = replace(families()[f"poisson-{gap}"], fleet=lambda _: fleet)
        for instance in range(INSTANCES):
            problem = family.problem(RENTED_NODES, instance)
            costs[gap, instance] = {
                name: simulate(problem, policies()[name], keeps_history=False).total_usd for name in POLICIES
            }
    return costs


# ---------------------------------------------------------------- Driple: bursts and idle gaps


def driple(paper: Paper) -> Ours:
    """Patterns and durations of 268 trainings on CPUs, and the figures of the suite `resources`."""
    del paper
    rows = _bursts()
    figures: dict[str, float] = {}
    for name, resource in (("utilisation", "cpu"), ("memory", "memory"), ("transmit", "network_transmit"),
                           ("receive", "network_receive")):  # fmt: skip
        of_resource = [row for row in rows if row["resource"] == resource]
        for pattern in ("I", "BIB", "B"):
            share = statistics.fmean(row["pattern"] == pattern for row in of_resource)
            figures[f"{name}-{pattern}"] = 100 * share
    ratios = [
        float(row["burst_duration"]) / float(row["idle_duration"])
        for row in rows
        if row["resource"] == "network_transmit" and row["pattern"] == "BIB"
    ]
    figures["transmit-shorter"] = 100 * (1 - statistics.median(ratios))
    for name in ("utilisation", "memory", "transmit", "receive"):
        figures[f"error-{name}"] = 100 * figure_of("resources", name, "Inspector", "mean")
    nrmse = {(row[0], row[1].partition(" (")[0].partition(",")[0]): float(row[2]) for row in design_rows()}
    for name in ("proportional", "uniform"):
        figures[f"grouping-{name}"] = 100 * (1 - nrmse["grouping", name] / nrmse["grouping", "none"])
    transfer = [row for row in transfer_rows() if row[0].endswith("as Driple")]
    seconds = {(row[1], row[2]): float(row[6].removesuffix(" s")) for row in transfer}
    errors = {(row[1], row[2]): float(row[3].removesuffix("%")) for row in transfer}
    sizes = [size for way, size in seconds if way == "transferred"]
    figures["transfer-time"] = statistics.fmean(
        seconds["from scratch", size] / seconds["transferred", size] for size in sizes
    )
    fewer, all_runs = sizes[-2], sizes[-1]
    findings = {
        "gcn-lowest": _lowest(nrmse, "network", "GCN"),
        "half-lowest": _lowest(nrmse, "K", "m/2"),
        "set2set-lowest": _lowest(nrmse, "readout", "set2set"),
        "transfer-fewer-runs": (
            errors["transferred", fewer] <= errors["from scratch", all_runs],
            f"{errors['transferred', fewer]:.1f} % with {fewer} runs, "
            f"{errors['from scratch', all_runs]:.1f} % anew with {all_runs}",
        ),
        "settings-differ": _settings_differ(),
    }
    wanted = {
        key for key in figures if not key.endswith(("transmit-I", "transmit-B", "receive-I", "receive-B"))
    }
    return Ours({key: figures[key] for key in figures if key in wanted}, findings)


def _bursts() -> list[dict[str, str]]:
    with BURSTS.open(newline="", encoding="utf-8") as lines:
        return [row for row in csv.DictReader(lines) if row["is_server"] == "0"]


def _lowest(nrmse: Mapping[tuple[str, str], float], axis: str, name: str) -> tuple[bool, str]:
    members = {design: value for (of, design), value in nrmse.items() if of == axis}
    listed = ", ".join(f"{design} {value:.3f}" for design, value in members.items())
    return members[name] <= min(members.values()), listed


def _settings_differ() -> tuple[bool, str]:
    """GPU bursts of ResNet-56 in the three settings."""
    bursts = {
        name: consumption.of("gpu").burst_duration.p50
        for name, consumption in predict_settings("cifar-resnet56", 512).items()
    }
    listed = ", ".join(f"{name}: {seconds * 1e3:.1f} ms" for name, seconds in bursts.items())
    ordered = sorted(bursts.values())
    return all(after > 1.05 * before for before, after in pairwise(ordered)), f"GPU bursts, {listed}"


# ---------------------------------------------------------------- Pani, Hand, Yalamanchili: buyer's guide


def pani(paper: Paper) -> Ours:
    """The networks, their verdicts, the split of two unequal nodes and the cut of a pipeline."""
    del paper
    cnn, resnet = summary_of("mnist-cnn"), summary_of("mnist-resnet18")
    hidden, classes = (layer for layer in cnn.layers if layer.type == "Linear")
    first = next(layer for layer in resnet.layers if layer.type == "Conv2d")
    width = first.output_shapes[0][1]
    kernel = round((first.parameters / width) ** 0.5)
    pair = ft.predict("resnet50", on=str(EXAMPLES / "unequal_pair.yaml"), global_batch=840, precision="fp32")
    assert not isinstance(pair, Infeasible) and pair.split is not None
    weak = pair.split.shares[1]
    alone = next(each.gain for each in pair.bottleneck.advice if each.change == "without m60")
    assert alone is not None
    slow, fast = Worker(lambda batch: 20.0 * batch, 10_000), Worker(lambda batch: 1.0 * batch, 10_000)
    counted = balance_batches(2100, (slow, fast))
    assert counted is not None
    figures = {
        "cnn-features": (hidden.parameters - hidden.output_shapes[0][-1]) / hidden.output_shapes[0][-1],
        "cnn-hidden": hidden.output_shapes[0][-1],
        "cnn-classes": classes.output_shapes[0][-1],
        "resnet-channels": first.parameters / width / kernel**2,
        "resnet-kernel": kernel,
        "weaker-share-counted": 100 * counted[0] / 2100,
        "weaker-share": 100 * weak.samples / 840,
        "rtx-over-gtx": _step_seconds("mnist-resnet18", "gtx1660ti", 512)
        / _step_seconds("mnist-resnet18", "rtx2080ti", 512),
    }
    return Ours(figures, {**_guide_findings(), **_other_findings(1 - alone)})


def _guide_findings() -> dict[str, tuple[bool, str]]:
    cnn, resnet = _mnist_epochs("mnist-cnn", "dp"), _mnist_epochs("mnist-resnet18", "dp")
    is_first = [row[0] == min(row) for row in cnn]
    is_in_order = [row == sorted(row) for row in cnn]
    spread = [max(row) / min(row) for row in resnet]
    with_ddp = [max(row) / min(row) for row in _mnist_epochs("mnist-resnet18", "ddp")]
    return {
        "cnn-one-gpu": (all(is_first), _batches_in_words(is_first)),
        "cnn-order": (all(is_in_order), _batches_in_words(is_in_order)),
        "resnet-varies-little": (
            max(spread) < 1.5,
            f"the slowest takes {min(spread):.1f} to {max(spread):.1f} times the fastest by DataParallel, "
            f"{min(with_ddp):.1f} to {max(with_ddp):.1f} times by DDP",
        ),
    }


def _mnist_epochs(model: str, strategy: str) -> list[list[float]]:
    """Seconds of an epoch for each batch size on 1, 2, 4 and 8 GPUs."""
    answer = guide_of((model,), ("rtx2080ti",), BATCHES, (1, 2, 4, 8), MNIST_SAMPLES, strategy)
    by_machine = (
        [_epoch_seconds(each.figures) for each in row if each.figures] for row in answer.models[0].cells
    )
    return [list(column) for column in zip(*by_machine, strict=True)]


def _batches_in_words(holds: Sequence[bool]) -> str:
    batches = [str(batch) for batch, each in zip(BATCHES, holds, strict=True) if each]
    return f"at {len(batches)} of {len(BATCHES)} batch sizes ({', '.join(batches)})"


def _other_findings(shortened: float) -> dict[str, tuple[bool, str]]:
    large = guide_of(("resnet50",), ("rtx2080ti",), (512,), counts=(1, 8), strategy="ddp")
    gain = figures_of(large, "rtx2080ti:8", 512).speedup
    assert gain is not None
    # The example of the paper: 5 values cross between the layers 5 and 6, 25 elsewhere.
    crossing = [25.0] * 9
    crossing[4] = 5.0
    time, nothing = np.full(10, 1.0), np.zeros(10)
    cuts = cut(Chain(time, 2 * time, nothing, nothing, np.array(crossing)), 2, StageLink(seconds_per_byte=1))
    assert isinstance(cuts, Cuts)
    return {
        "large-gains": (gain > 1, f"{gain:.1f} times as fast as one (DDP, global batch 512)"),
        "weak-node-hardly": (0 < shortened < 0.05, f"by {shortened:.1%}"),
        "cut-where-few": (
            cuts.bounds[1] == 5,
            f"cut after layer {cuts.bounds[1]}, {cuts.cut_bytes[0]:.0f} cross",
        ),
    }


# ---------------------------------------------------------------- shared


def guide_of(
    models: tuple[str, ...],
    on: tuple[str, ...],
    batches: tuple[int, ...],
    counts: tuple[int, ...] = (),
    samples: int | None = None,
    strategy: str = "ddp",
) -> Guide:
    """What `foretrain guide` answers."""
    workloads = tuple(workload_of(WorkloadRequest(model)) for model in models)
    return guide(GuideProblem(workloads, machines_named(on, counts), batches, samples, strategy))


def figures_of(answer: Guide, machine: str, batch: int) -> CellFigures:
    """A cell of the first model."""
    place = [each.name for each in answer.machines].index(machine)
    cell = answer.models[0].cells[place][answer.batches.index(batch)]
    assert cell.figures is not None, cell.reason
    return cell.figures


def _step_seconds(model: str, on: str, batch: int, precision: Literal["fp32"] | None = None) -> float:
    answer = ft.predict(model, on=on, batch=batch, precision=precision, advice=False)
    assert not isinstance(answer, Infeasible)
    return answer.step.seconds.p50


def summary_of(model: str) -> TraceSummary:
    """What `foretrain trace` counts."""
    return summarise(graph_of(workload_of(WorkloadRequest(model))))


@cache
def _history() -> dict[tuple[str, str, str], dict[str, str]]:
    with HISTORY.open(newline="", encoding="utf-8") as lines:
        return {(row["suite"], row["cases"], row["method"]): row for row in csv.DictReader(lines)}


def figure_of(suite: str, cases: str, method: str, column: str = "median") -> float:
    """A figure of the last run of a suite."""
    return float(_history()[suite, cases, method][column])


def design_rows() -> list[tuple[str, ...]]:
    """The design study of the suite `resources`."""
    return _report_rows("resources", "design study")


def transfer_rows() -> list[tuple[str, ...]]:
    """Transfer of an Inspector, of the suite `resources`."""
    return _report_rows("resources", "transfer to a parameter server")


def _report_rows(suite: str, title: str) -> list[tuple[str, ...]]:
    """The rows of a table of a kept report, by the beginning of its title."""
    lines = (REPORTS / f"{suite}.md").read_text(encoding="utf-8").splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith(f"**{title}"))
    rows = []
    for line in lines[start + 4 :]:
        if not line.startswith("|"):
            break
        rows.append(tuple(cell.strip() for cell in line.strip("|").split(" | ")))
    return rows
