"""PEFT's comparison of fine-tuning methods: Llama-3.2-3B on one L40S, batches of 4 padded to their longest.

Measured by huggingface/peft `method_comparison/MetaMathQA/run.py`: seconds of a step (zero_grad to the loss
read back), and bytes reserved by PyTorch's caching allocator after each step, less those before the model was
loaded, so without the CUDA context. The predictions are those of `foretrain.predict`, and nothing was fitted
to any of these rows.
"""

from __future__ import annotations

import csv
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import foretrain as ft
from foretrain.estimates import Quantiles
from validation.report import Case, Metrics, SuiteReport, Table, metrics

FILE = Path("peft") / "llama32_3b_l40s.csv"
OURS = "foretrain"
MODEL, DEVICE, LAYERS = "llama3.2-3b", "l40s", 28
_WIDTH, _HIDDEN, _KEYS = 3072, 8192, 1024
LINEARS = {
    "q_proj": (_WIDTH, _WIDTH),
    "k_proj": (_WIDTH, _KEYS),
    "v_proj": (_WIDTH, _KEYS),
    "o_proj": (_WIDTH, _WIDTH),
    "gate_proj": (_WIDTH, _HIDDEN),
    "up_proj": (_WIDTH, _HIDDEN),
    "down_proj": (_HIDDEN, _WIDTH),
}
"""Inputs and outputs of the linear layers of a block, from the model's public config.json."""
CONTEXT = "framework context"
EXACT, LIKE = "LoRA, DoRA and full fine-tuning", "other adapters, as LoRA of the same size"
_NOTES = (
    "Memory is compared at the longest batch a run may have, 4 sequences of 768 tokens, with the largest "
    "reserved memory of 5,000 steps; the predicted framework context is subtracted, as the benchmark does.",
    "Times are compared at the mean number of tokens of a step (tokens/s times seconds a step). Padding to "
    "the longest sample of a batch is not counted; the benchmark sorts 80 samples by length to lessen it.",
    "Steps clip the norm of the gradients, which foretrain has no option for: for full fine-tuning it reads "
    "all gradients twice and writes them once, about 26 ms. AdamW's 20 passes over 6.4 GB are priced at the "
    "nominal bandwidth, the lower bound of the correction for half precision, which no kernel reaches.",
    "Elementwise kernels and casts of a mean step work on tensors of 5 to 28 MB (of the 38 GB they move with "
    "LoRA of rank 32, 36 GB are in kernels of less than 60 MB). The 96 MiB cache of an L40S can keep these "
    "from one kernel to the next; foretrain prices all of them from memory. This is the likely reason why "
    "adapters are predicted too slow, most of all those beside the MLP; it was not tested.",
    f"{LIKE}: adapters beside linear layers without a model of their own are predicted as LoRA beside the "
    "same layers, with the rank whose number of trained parameters is nearest. Many of them make a whole "
    "weight in each step (BOFT, FourierFT, FRoD, HiRA, LoHa, LoKr, PEANuT, WaveFT), which LoRA does not.",
)


@dataclass(frozen=True)
class Method:
    """A row of the measurements. `lora` are the options it is predicted with, None for full fine-tuning."""

    name: str
    kind: str
    seconds: float
    tokens: float
    reserved_bytes: float
    batch: int
    longest: int
    trained: int
    lora: str | None
    is_exact: bool


def run(data: Path) -> SuiteReport:
    """Time and memory of every method that foretrain can be asked for."""
    methods, not_asked = read(data / FILE)
    tokens = round(statistics.median(method.tokens / method.batch for method in methods))
    times = [_time_case(method, tokens) for method in methods]
    memory = [_memory_case(method) for method in methods]
    return SuiteReport(
        "peft",
        tuple(times),
        {**_sets("memory", memory), **_sets("seconds a step", times)},
        tables=(_by_method(methods, times, memory), _not_asked(not_asked)),
        notes=(f"The mean sample has {tokens} tokens.", *_NOTES),
    )


def read(file: Path) -> tuple[list[Method], list[tuple[str, str]]]:
    """The methods to predict, and the names of the others with the reason."""
    methods, not_asked = [], []
    with file.open(newline="", encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            targets = tuple(filter(None, row["target_modules"].split("+")))
            if row["peft_type"] == "FULL" or (targets and set(targets) <= set(LINEARS)):
                methods.append(_method(row, targets))
            else:
                where = f"trains {'+'.join(targets)}" if targets else "trains embeddings or keys and values"
                not_asked.append((row["method"], f"{where}, not a matrix beside linear layers"))
    return methods, not_asked


def _method(row: dict[str, str], targets: tuple[str, ...]) -> Method:
    trained, is_full = int(row["trainable_parameters"]), row["peft_type"] == "FULL"
    is_dora = row["use_dora"] == "1"
    is_lora = row["peft_type"] == "LORA" and trained == trained_by_lora(int(row["rank"]), targets, is_dora)
    rank = (
        int(row["rank"])
        if is_lora
        else max(1, round(trained / trained_by_lora(1, targets)))
        if targets
        else 0
    )
    lora = f"r={rank},targets={'+'.join(targets)}{',dora' if is_dora else ''}"
    seconds = float(row["train_seconds_per_step"])
    return Method(
        name=row["method"].replace("--llama-3.2-3B", ""),
        kind="full fine-tuning" if is_full else row["peft_type"],
        seconds=seconds,
        tokens=seconds * float(row["tokens_per_second"]),
        reserved_bytes=float(row["reserved_bytes_max"]),
        batch=int(row["batch"]),
        longest=int(row["max_seq_len"]),
        trained=trained,
        lora=None if is_full else lora,
        is_exact=is_full or is_lora,
    )


def trained_by_lora(rank: int, targets: Sequence[str], dora: bool = False) -> int:
    """Parameters that LoRA trains: rank · (inputs + outputs) a layer, and DoRA one more for each output."""
    return LAYERS * sum(rank * sum(LINEARS[name]) + (LINEARS[name][1] if dora else 0) for name in targets)


@cache
def _predicted(lora: str | None, batch: int, seq_len: int) -> ft.JobPrediction:
    adapted = {"weights": "bf16"} if lora is None else {"lora": lora, "autocast": False}
    answer = ft.predict(
        MODEL, on=DEVICE, batch=batch, seq_len=seq_len, precision="bf16", advice=False, **adapted
    )
    assert isinstance(answer, ft.JobPrediction)
    return answer


def _time_case(method: Method, tokens: int) -> Case:
    seconds = _predicted(method.lora, method.batch, tokens).step.seconds
    return Case(method.name, _group(method), method.seconds, {OURS: seconds.p50}, seconds)


def _memory_case(method: Method) -> Case:
    memory = _predicted(method.lora, method.batch, method.longest).memory
    context = sum(part.bytes for part in memory.parts if part.name == CONTEXT)
    low, middle, high = (each - context for each in (memory.bytes.p10, memory.bytes.p50, memory.bytes.p90))
    return Case(
        method.name, _group(method), method.reserved_bytes, {OURS: middle}, Quantiles(low, middle, high)
    )


def _group(method: Method) -> str:
    return EXACT if method.is_exact else LIKE


def _sets(what: str, cases: Sequence[Case]) -> dict[str, dict[str, Metrics]]:
    chosen = {f"{what}, {group}": [case for case in cases if case.group == group] for group in (EXACT, LIKE)}
    chosen[f"{what}, all"] = list(cases)
    return {name: {OURS: metrics(members, OURS, with_interval=True)} for name, members in chosen.items()}


def _by_method(methods: Sequence[Method], times: Sequence[Case], memory: Sequence[Case]) -> Table:
    rows = sorted(
        zip(methods, times, memory, strict=True), key=lambda each: (not each[0].is_exact, each[0].name)
    )
    return Table(
        "by method",
        ("method", "predicted as", "ms", "predicted", "error", "GB", "predicted", "error"),
        tuple(
            (
                method.name,
                method.lora or "bf16 weights",
                *_cells(time, 1e3),
                *_cells(held, 1e-9),
            )
            for method, time, held in rows
        ),
    )


def _cells(case: Case, unit: float) -> tuple[str, str, str]:
    predicted = case.predicted[OURS]
    return f"{case.measured * unit:.1f}", f"{predicted * unit:.1f}", f"{predicted / case.measured - 1:+.1%}"


def _not_asked(names: Sequence[tuple[str, str]]) -> Table:
    return Table("not asked: foretrain has no model of these methods", ("method", "why"), tuple(names))
