"""Is "does it fit?" called right, for runs that are known to have run or to have run out of memory?

Three sources, none of them made here: MPT with FSDP by llm-foundry (all ran), the layouts of the ultra-scale
playbook (nanotron; those without figures did not run), and published memory of LoRA and QLoRA. Each row is
one call of `foretrain.predict`, as a user would ask; nothing was fitted to the verdicts.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import foretrain as ft
from calibration.datasets import ultrascale
from foretrain.errors import ForetrainError
from validation.report import Case, Metrics, SuiteReport, Table, Verdicts, metrics

OURS, ALWAYS = "foretrain", "everything fits"
MPT, LAYOUTS, ADAPTERS = "MPT by llm-foundry", "ultra-scale playbook", "LoRA and QLoRA"
FIGURES = Path(__file__).parent / "data" / "adapter_memory.csv"
MODELS = Path(__file__).parent / "data" / "models"
EVERY = 20
"""Every 20th layout of the playbook is asked, in the order of its table."""
_GIB, _GB = 2.0**30, 1e9
_DEVICES = {"a100_40gb": "a100-sxm-40gb", "a100_80gb": "a100-sxm-80gb", "h100_80gb": "h100-sxm"}
_STRATEGIES = {"FULL_SHARD": "fsdp", "SHARD_GRAD_OP": "zero2"}
_PRECISIONS = {"amp_bf16": "bf16", "bf16": "bf16", "amp_fp8": "fp8"}
_NOTES = (
    f"{MPT}: `validation/data/models/mpt.py` (learned positions up to the sequence length, tied embedding, "
    "fused cross-entropy, which is llm-foundry's default), FSDP over all GPUs, AdamW, flash attention; "
    "micro-batch, accumulation, precision and checkpointing as published. Composer keeps sharded FP32 "
    "parameters beside gathered BF16 ones.",
    f"{LAYOUTS}: every {EVERY}th layout that nanotron accepts (enough micro-batches for the pipeline, no "
    "empty stage). A layout without figures did not run, mostly out of memory; the cause is not given.",
    f"{ADAPTERS}: `validation/data/adapter_memory.csv` with the source of each figure and what was assumed. "
    "LLM.int8, nested quantisation, CPU offload and LitGPT's runs on several GPUs (whose memory is that of "
    "loading the whole model) are not asked.",
)


@dataclass(frozen=True)
class Asked:
    """A run: where it is from, whether it ran, what it held if that is published, and how it is asked."""

    source: str
    name: str
    ran: bool
    settings: dict[str, Any]
    reported_bytes: float | None = None


@dataclass(frozen=True)
class Judged:
    """What foretrain answers; `refusal` where it did not."""

    asked: Asked
    fits: bool = False
    peak_bytes: float = 0.0
    capacity_bytes: float = 0.0
    parts: dict[str, float] = field(default_factory=dict)
    refusal: str = ""


def run(data: Path) -> SuiteReport:
    """Ask every run, and count the verdicts by source."""
    judged = [judge(each) for each in (*mpt_runs(data), *layouts(data), *adapters(FIGURES))]
    answered = [each for each in judged if not each.refusal]
    memory = [memory_case(each) for each in answered if each.asked.reported_bytes]
    return SuiteReport(
        "did_it_run",
        tuple(memory),
        _memory_metrics(memory),
        _verdicts(answered),
        notes=_NOTES,
        tables=(_confusion(answered), _wrong(answered), _refused(judged)),
    )


def judge(asked: Asked) -> Judged:
    """Ask one run by the public path."""
    try:
        answer = ft.predict(**asked.settings, advice=False)
    except ForetrainError as error:
        return Judged(asked, refusal=str(error))
    if isinstance(answer, ft.Infeasible):
        return Judged(asked, refusal=str(answer))
    memory = answer.memory
    parts = {part.name: part.bytes for part in memory.parts}
    return Judged(asked, memory.fits, memory.bytes.p50, memory.capacity_bytes, parts)


# The sources


def mpt_runs(data: Path) -> Iterator[Asked]:
    """The runs of llm-foundry's table; all of them ran."""
    with (data / "llm_foundry" / "mpt_throughput.csv").open(newline="", encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            yield mpt_run(row)


def mpt_run(row: dict[str, str]) -> Asked:
    """One row of the table as a request."""
    gpus, accumulated, micro_batch = (
        int(row[key]) for key in ("gpus", "gradient_accumulation", "micro_batch")
    )
    checkpointed = row["activation_checkpointing"] == "1"
    precision, reduced = row["precision"].split("/")
    settings = {
        "model": f"{MODELS / 'mpt.py'}:mpt_{row['model']}",
        "on": f"{_DEVICES[row['gpu']]}:8" + (f"x{gpus // 8}" if gpus > 8 else ""),
        "strategy": _STRATEGIES[row["sharding"]],
        "precision": _PRECISIONS[precision],
        "attention": "flash",
        "batch": micro_batch * accumulated,
        "micro_batches": accumulated,
        "seq_len": int(row["seq_len"]),
        "checkpoint_activations": checkpointed,
    }
    name = (
        f"MPT-{row['model']} {row['seq_len']} tokens, {accumulated} x {micro_batch} on {gpus} {row['gpu']}, "
        f"{row['sharding']}, {precision}/{reduced}{', checkpointing' if checkpointed else ''}"
    )
    return Asked(MPT, name, True, settings)


def layouts(data: Path) -> Iterator[Asked]:
    """Every 20th layout of the playbook that nanotron accepts."""
    accepted = [each for each in ultrascale.read(data) if ultrascale.can_run(each)]
    yield from map(layout, accepted[::EVERY])


def layout(run: ultrascale.NanotronRun) -> Asked:
    """One layout as a request."""
    gathered = "sp=keep" if run.pipeline == 1 else "sp"  # nanotron reduces and scatters along the sequence
    divided = f"tp={run.tensor},{gathered}" if run.tensor > 1 else "tp=1"
    strategy = f"{divided},pp={run.pipeline},dp={run.data}"
    if run.pipeline > 1:
        strategy += f",layers={'+'.join(map(str, ultrascale.stage_layers(run)))}"
    settings = {
        "model": f"hf:{MODELS / f'nanotron-{run.model.lower()}.json'}",
        "on": ultrascale.HARDWARE + (f":{run.nodes}" if run.nodes > 1 else ""),
        "strategy": strategy + (",zero=1" if run.zero_stage else ""),
        "precision": "bf16",
        "weights": "bf16",
        "master_weights": True,
        "gradients": "fp32",
        "optimizer": "adamw-fused",
        "attention": "flash2",
        "framework": "nanotron",
        "batch": run.micro_batch * run.micro_batches,
        "micro_batches": run.micro_batches,
        "seq_len": ultrascale.SEQ_LEN,
    }
    parts = f"{run.micro_batches} x {run.micro_batch}"
    name = f"Llama {run.model} {settings['strategy']}, {parts} on {run.nodes} nodes"
    return Asked(LAYOUTS, name, run.seconds is not None, settings)


def adapters(file: Path) -> Iterator[Asked]:
    """The published figures of LoRA and QLoRA."""
    with file.open(newline="", encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            yield adapter(row)


def adapter(row: dict[str, str]) -> Asked:
    """One published figure as a request."""
    settings: dict[str, Any] = {
        "model": row["model"].replace("validation/data/models", str(MODELS)),
        **{key: row[key] for key in ("on", "precision", "lora", "attention", "optimizer")},
        **{key: int(row[key]) for key in ("batch", "micro_batches", "seq_len")},
        "checkpoint_activations": row["checkpointing"] == "1",
        "compile": row["compile"] == "1",
    }
    if row["strategy"]:
        settings["strategy"] = row["strategy"]
    if row["autocast"] == "0":
        settings["autocast"] = False
    reported = float(row["reported_gb"]) * _GB if row["reported_gb"] else None
    name = f"{row['source']}: {row['figure']} on {row['on']}"
    return Asked(ADAPTERS, name, row["ran"] == "1", settings, reported)


# The figures


def _verdicts(answered: Sequence[Judged]) -> dict[str, dict[str, Verdicts]]:
    by_source = {"all": answered}
    for source in (MPT, LAYOUTS, ADAPTERS):
        by_source[source] = [each for each in answered if each.asked.source == source]
    return {
        f"fits or does not: {name}": {
            OURS: Verdicts(sum(each.fits == each.asked.ran for each in members), len(members)),
            ALWAYS: Verdicts(sum(each.asked.ran for each in members), len(members)),
        }
        for name, members in by_source.items()
    }


def memory_case(judged: Judged) -> Case:
    """What a framework reports of its own memory, and its tensors and allocator as predicted."""
    assert judged.asked.reported_bytes is not None
    outside = sum(judged.parts.get(name, 0.0) for name in ("framework context", "communicators"))
    predicted = {OURS: judged.peak_bytes - outside}
    return Case(judged.asked.name, judged.asked.name.split(":")[0], judged.asked.reported_bytes, predicted)


def _memory_metrics(cases: Sequence[Case]) -> dict[str, dict[str, Metrics]]:
    return {"published memory of LoRA and QLoRA, without context": {OURS: metrics(cases, OURS)}}


def _confusion(answered: Sequence[Judged]) -> Table:
    rows = []
    for source in (MPT, LAYOUTS, ADAPTERS):
        members = [each for each in answered if each.asked.source == source]
        counts = [
            sum(each.asked.ran is ran and each.fits is fits for each in members)
            for ran in (True, False)
            for fits in (True, False)
        ]
        rows.append((source, *map(str, counts)))
    headings = ("source", "ran, fits", "ran, does not fit", "did not run, fits", "did not run, does not fit")
    return Table("confusion", headings, tuple(rows))


def _wrong(answered: Sequence[Judged]) -> Table:
    """The wrong verdicts, the farthest from the capacity first, with what the peak consists of."""
    wrong = [each for each in answered if each.fits != each.asked.ran]
    wrong.sort(key=lambda each: -abs(each.peak_bytes / each.capacity_bytes - 1))
    headings = ("run", "ran", "peak GiB", "capacity GiB", "largest parts, GiB")
    return Table("wrong verdicts", headings, tuple(map(_wrong_row, wrong)))


def _wrong_row(judged: Judged) -> tuple[str, ...]:
    largest = sorted(judged.parts.items(), key=lambda part: -part[1])[:4]
    return (
        judged.asked.name,
        "yes" if judged.asked.ran else "no",
        f"{judged.peak_bytes / _GIB:.1f}",
        f"{judged.capacity_bytes / _GIB:.1f}",
        ", ".join(f"{name} {size / _GIB:.1f}" for name, size in largest),
    )


def _refused(judged: Sequence[Judged]) -> Table:
    rows = tuple((each.asked.name, each.refusal) for each in judged if each.refusal)
    return Table("not answered", ("run", "why"), rows or (("none", ""),))
