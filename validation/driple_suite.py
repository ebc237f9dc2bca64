"""The figures that Driple's presentation publishes, beside what the timeline predicts.

Three motivating workloads with the bursts and gaps of one resource each, and three what-ifs as findings. The
presentation does not state in which setting the workloads ran, which V100 it had, which sequences NMT was
trained on, nor how often its monitor sampled: each workload is predicted in all three settings that it names,
in FP32, by the timeline alone.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from foretrain.answers import Infeasible
from foretrain.facts.hardware import cluster
from foretrain.prediction.options import Parallelism
from foretrain.prediction.predict import pace_of
from foretrain.prediction.resources.bursts import Pattern
from foretrain.prediction.resources.consumption import (
    METRICS,
    Consumption,
    ResourceBursts,
    format_level,
    timeline_consumption,
)
from foretrain.prediction.scenario import Scenario
from foretrain.units import format_duration
from foretrain.workloads.options import WorkloadRequest
from foretrain.workloads.workload import workload_of
from validation.report import Case, SuiteReport, Table, Verdicts, metrics

FILE = Path(__file__).parent / "driple_workloads.toml"
METHOD = "foretrain, timeline"
_STUDIED = "cifar-resnet56"
"""The workload of the presentation's comparison of settings (CIFAR-10, batch 512)."""
_STUDIED_BATCH = 512
_V100, _2080TI = {"on": "v100-pcie-32gb:1x2"}, {"on": "rtx2080ti:1x2"}
_NETWORK = "ethernet-40g"
_LEAST_CHANGE = 0.01
"""Durations that differ by less are equal."""
_SAMPLES = 1000
"""Of a step in the what-ifs, whose gaps are short."""


def run(data: Path) -> SuiteReport:
    """Predict the workloads in all settings, and the three what-ifs."""
    del data  # published figures, in this folder
    raw = tomllib.loads(FILE.read_text(encoding="utf-8"))
    cases: list[Case] = []
    rows = []
    for workload in raw["workload"]:
        rows.append((workload["name"], workload["resource"], "published", *_published(workload)))
        for setting in raw["setting"]:
            bursts = _predicted(workload, setting)
            rows.append((workload["name"], workload["resource"], setting["name"], *_cells(bursts)))
            cases += _cases(workload, setting["name"], bursts)
    figures = {"all settings": {METHOD: metrics(cases, METHOD)}} | {
        setting["name"]: {METHOD: metrics([each for each in cases if each.group == setting["name"]], METHOD)}
        for setting in raw["setting"]
    }
    findings, explained = _what_ifs()
    return SuiteReport(
        "driple",
        tuple(cases),
        figures,
        {"the presentation's three what-ifs": {METHOD: findings}},
        (*explained, *_NOTES),
        (
            Table(
                "three motivating workloads",
                ("workload", "resource", "setting", "burst", "for", "idle", "for"),
                tuple(rows),
            ),
        ),
    )


_NOTES = (
    "Unknown: the setting of the three workloads, the variant of the V100, the length of NMT's sequences and "
    "its vocabulary, the interval and the definition of the monitor, TensorFlow's overheads; foretrain "
    "predicts PyTorch.",
    "The presentation does not state the workload of its what-ifs; that of its comparison of settings is "
    "taken (ResNet-56, CIFAR-10, batch 512), with two V100 on 40 Gbit/s.",
    "Bytes: the published burst of NMT carries 124 MB (374.3 MB/s for 0.33 s), its model in foretrain's zoo "
    "360 MB of parameters; a smaller vocabulary or updates of used rows only would explain it. The published "
    "rate is 3 Gbit/s, what TensorFlow's gRPC made of the link.",
    "GPU memory: NVML reports the share of time in which memory is read or written at all, the timeline the "
    "share of its peak bandwidth, which is lower.",
    "The published idle level of the GPU (84.6 %) means that both of its clusters are busy: the timeline has "
    "gaps only while a worker exchanges data.",
    "A figure that the timeline does not have (a resource without gaps) is no case; the table shows it.",
)


def _scenario(workload: Mapping[str, Any], setting: Mapping[str, Any], strategy: str) -> Scenario:
    return Scenario(
        workload=workload_of(
            WorkloadRequest(workload["model"], batch=workload["batch"], optimizer="momentum")
        ),
        cluster=cluster(setting["on"]),
        parallelism=Parallelism(
            strategy=strategy, links=setting.get("links"), network=setting.get("network")
        ),
        advice=False,
    )


def _consumption(scenario: Scenario, samples: int | None = None) -> Consumption:
    pace = pace_of(scenario)
    assert not isinstance(pace, Infeasible), "a strategy that is given is feasible"
    return timeline_consumption(scenario, pace, "", pace.seconds / samples if samples else None)


def predict_settings(model: str, batch: int) -> dict[str, Consumption]:
    """A workload under synchronous servers, by the name of each setting that the presentation has."""
    workload = {"model": model, "batch": batch}
    settings = tomllib.loads(FILE.read_text(encoding="utf-8"))["setting"]
    return {
        setting["name"]: _consumption(_scenario(workload, setting, f"ps-sync,servers={setting['servers']}"))
        for setting in settings
    }


def _predicted(workload: Mapping[str, Any], setting: Mapping[str, Any]) -> ResourceBursts:
    strategy = f"ps-{workload['updates']},servers={setting['servers']}"
    return _consumption(_scenario(workload, setting, strategy)).of(workload["resource"])


def _cases(workload: Mapping[str, Any], setting: str, bursts: ResourceBursts) -> Iterator[Case]:
    for metric in METRICS:
        value = getattr(bursts, metric).p50
        if value > 0:
            name = f"{workload['name']}: {bursts.name} {metric.replace('_', ' ')}"
            yield Case(name, setting, workload[metric], {METHOD: value})


def _published(workload: Mapping[str, Any]) -> tuple[str, ...]:
    unit = {"receive": "bytes/s"}.get(workload["resource"], "share")
    return (
        format_level(workload["burst_amount"], unit),
        format_duration(workload["burst_duration"]),
        format_level(workload["idle_amount"], unit),
        format_duration(workload["idle_duration"]),
    )


def _cells(bursts: ResourceBursts) -> tuple[str, ...]:
    idle = format_level(bursts.idle_amount, bursts.unit)
    burst = format_level(bursts.burst_amount.p50, bursts.unit)
    if bursts.pattern is Pattern.ALTERNATING:
        durations = format_duration(bursts.burst_duration.p50), format_duration(bursts.idle_duration.p50)
        return burst, durations[0], idle, durations[1]
    return (burst, "throughout", "", "") if bursts.pattern is Pattern.BUSY else ("", "", idle, "throughout")


def _what_ifs() -> tuple[Verdicts, tuple[str, ...]]:
    """Findings of the presentation that hold for the timeline, and what was compared."""
    studied = {"model": _STUDIED, "batch": _STUDIED_BATCH}
    gpu = [
        _consumption(_scenario(studied, {**setting, "network": _NETWORK}, "ps-sync"), _SAMPLES)
        for setting in (_V100, _2080TI)
    ]
    servers = [
        _consumption(_scenario(studied, {**_V100, "network": _NETWORK}, f"ps-sync,servers={count}"), _SAMPLES)
        for count in (1, 2)
    ]
    batches = [
        _consumption(
            _scenario({**studied, "batch": size}, {**_V100, "network": _NETWORK}, "ps-sync"), _SAMPLES
        )
        for size in (_STUDIED_BATCH, 2 * _STUDIED_BATCH)
    ]
    bursts, gaps = (
        [[getattr(each.of("gpu"), metric).p50 for each in pair] for pair in (gpu, servers)]
        for metric in ("burst_duration", "idle_duration")
    )
    growth = batches[1].step_seconds.p50 / batches[0].step_seconds.p50
    change = servers[1].step_seconds.p50 / servers[0].step_seconds.p50 - 1
    checks = (
        ("2080 Ti instead of V100: longer GPU bursts", _grows(bursts[0]), _pair(bursts[0])),
        ("2080 Ti instead of V100: shorter gaps", _grows(gaps[0][::-1]), _pair(gaps[0])),
        ("2 servers instead of 1: longer GPU bursts", _grows(bursts[1]), _pair(bursts[1])),
        ("2 servers instead of 1: shorter gaps", _grows(gaps[1][::-1]), _pair(gaps[1])),
        (
            "2 servers instead of 1: the step stays the same (within 10 %)",
            abs(change) < 0.1,
            f"{change:+.1%}",
        ),
        ("twice the batch: the step grows by less than 2", growth < 2, f"{growth:.2f} times"),
    )
    notes = tuple(f"{name}: {'yes' if holds else 'no'} ({values})" for name, holds, values in checks)
    return Verdicts(sum(holds for _, holds, _ in checks), len(checks)), notes


def _grows(values: list[float]) -> bool:
    return values[1] > (1 + _LEAST_CHANGE) * values[0]


def _pair(values: list[float]) -> str:
    return " to ".join(map(format_duration, values))
