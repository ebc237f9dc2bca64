"""Memory of parallel layouts: Megatron with tensor, pipeline, context and expert parallelism.

* `simumax/*`: 12 layers of Llama-3-70B and 4 of DeepSeek-V2 on 8 B200 under Megatron-LM with Transformer
  Engine: the peak of the memory that PyTorch has allocated, on the rank that needs most. BF16 with FP32
  masters and gradients, distributed optimizer.
* `sailor/opt350_gh200`: OPT-350M under Megatron-DeepSpeed, tensor parallel 4: `memory.used` of nvidia-smi
  after the last iteration on the GH200 that had most (sailor's deepspeed/pipe_engine.py), 7 to 33 GB.

Nothing was fitted to any row. Rows that differ in the number of micro-batches alone have the same memory and
count once. SimuMax's rows are compared with `allocated` memory (all parts but context and allocator cache),
those of sailor with the whole.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import foretrain as ft
from validation.report import Case, Metrics, SuiteReport, Table, metrics

OURS = "foretrain"
FOLDER = Path(__file__).parents[1] / "build" / "layout_memory_suite"
FILES = (
    Path("simumax") / "llama3_70b_12_layers_b200.csv",
    Path("simumax") / "pp_cp_moe_b200.csv",
    Path("sailor") / "opt350_gh200.csv",
)
NOT_ALLOCATED = frozenset({"framework context", "communicators", "allocator rounding and fragmentation"})
NETWORKS = {"gh200": "infiniband-hdr:4"}
OPT = {
    "vocab_size": 50_688, "activation_function": "relu", "tie_word_embeddings": False,
    "attn_pdrop": 0.0, "resid_pdrop": 0.0, "embd_pdrop": 0.0,
}  # fmt: skip
"""How sailor's OPT differs from GPT-2 (megatron/model/opt_model.py of its Megatron-DeepSpeed): ReLU, no
dropout anywhere, a head of its own, GPT-2's 50,257 words padded to a multiple of 128 x 4 devices."""
_BEFORE, _AFTER = 3, 1
"""Modules of sailor's pipeline beside the layers: a cast, the embedding and a transposition; the head."""


@dataclass(frozen=True)
class Row:
    """A measured layout; `config` is the model's Hugging Face configuration."""

    name: str
    group: str
    config: str
    device: str
    strategy: str
    global_batch: int
    micro_batches: int
    seq_len: int
    precision: str
    attention: str
    bytes: float

    @property
    def is_allocated(self) -> bool:
        """Whether PyTorch's allocated peak was measured, not all memory of the process."""
        return self.group != "sailor"


def run(data: Path) -> SuiteReport:
    """Every layout once."""
    rows = read(data)
    answers = [predicted(row) for row in rows]
    cases = [
        Case(row.name, row.group, row.bytes, {OURS: compared_bytes(row, answer)})
        for row, answer in zip(rows, answers, strict=True)
    ]
    groups = dict.fromkeys(row.group for row in rows)
    chosen = {group: [case for case in cases if case.group == group] for group in groups}
    chosen["all of SimuMax"] = [case for case in cases if case.group != "sailor"]
    return SuiteReport(
        "layout_memory",
        tuple(cases),
        {name: _metrics(members) for name, members in chosen.items()},
        tables=(_parts_table(rows, answers),),
    )


def read(data: Path) -> list[Row]:
    """The rows; of those that differ in the number of micro-batches alone, the one with fewest."""
    rows: dict[tuple[str, str, int, float], Row] = {}
    for file in FILES:
        with (data / file).open(newline="", encoding="utf-8") as lines:
            for line in csv.DictReader(lines):
                row = _row(line, file.parts[0])
                per_micro_batch = row.global_batch // row.micro_batches
                key = (row.config, row.strategy, per_micro_batch, row.bytes)
                if key not in rows or row.micro_batches < rows[key].micro_batches:
                    rows[key] = row
    return list(rows.values())


def _row(line: dict[str, str], source: str) -> Row:
    strategy, options = line["strategy"], line["options"].split()
    return Row(
        name=line["row_id"],
        group="sailor" if source == "sailor" else _kind(strategy),
        config=line["model_config_json"],
        device=line["device"],
        strategy=strategy,
        global_batch=int(line["global_batch"]),
        micro_batches=int(line["micro_batches"]),
        seq_len=int(line["seq_len"]),
        precision=line["precision"],
        attention=options[options.index("--attention") + 1],
        bytes=float(line["measured_memory_bytes"]),
    )


def sailor_strategy(strategy: str, layers: int) -> str:
    """The layout with the layers of every stage: DeepSpeed gives each as many modules (`uniform`)."""
    stages = int(dict(part.partition("=")[::2] for part in strategy.split(","))["pp"])
    modules = _BEFORE + layers + _AFTER
    ends = [modules * stage // stages - _BEFORE for stage in range(1, stages)]
    bounds = [0, *ends, layers]
    counts = "+".join(str(end - start) for start, end in pairwise(bounds))
    return f"{strategy},layers={counts}" if stages > 1 else strategy


def _kind(strategy: str) -> str:
    """The axis a layout is about: the rarest of those it uses."""
    for axis, name in (("ep=", "MoE"), ("cp=", "CP"), ("pp=", "PP")):
        if axis in strategy:
            return f"SimuMax {name}"
    return "SimuMax TP"


def predicted(row: Row) -> ft.JobPrediction:
    """The prediction of a row."""
    asked: dict[str, Any] = {
        "optimizer": "adamw-fused",
        "precision": row.precision,
        "attention": row.attention,
    }
    strategy = row.strategy
    if not row.is_allocated:
        asked |= {"framework": "megatron-deepspeed"}
        asked |= {"network": NETWORKS["gh200"]} if "x" in row.device else {}
        strategy = sailor_strategy(row.strategy, json.loads(row.config)["n_layer"])
    answer = ft.predict(
        f"hf:{_config_file(row)}",
        on=row.device,
        strategy=strategy,
        global_batch=row.global_batch,
        micro_batches=row.micro_batches,
        seq_len=row.seq_len,
        advice=False,
        **asked,
    )
    assert isinstance(answer, ft.JobPrediction), answer
    return answer


def _config_file(row: Row) -> Path:
    FOLDER.mkdir(parents=True, exist_ok=True)
    content = json.loads(row.config)
    layers = content.get("num_hidden_layers", content.get("n_layer"))
    length = content.get("max_position_embeddings", content.get("n_positions"))
    file = FOLDER / f"{content['model_type']}_{layers}_layers_{length}.json"
    if not row.is_allocated:
        content |= OPT
    file.write_text(json.dumps(content), encoding="utf-8")
    return file


def compared_bytes(row: Row, answer: ft.JobPrediction) -> float:
    """What is predicted of what was measured."""
    if not row.is_allocated:
        return float(answer.memory.bytes.p50)
    return sum(part.bytes for part in answer.memory.parts if part.name not in NOT_ALLOCATED)


def _metrics(cases: Sequence[Case]) -> dict[str, Metrics]:
    return {OURS: metrics(cases, OURS)}


def _parts_table(rows: Sequence[Row], answers: Sequence[ft.JobPrediction]) -> Table:
    names = list(dict.fromkeys(part.name for answer in answers for part in answer.memory.parts))
    return Table(
        "GB by part",
        ("layout", "measured", "predicted", "error", *names),
        tuple(_part_rows(rows, answers, names)),
    )


def _part_rows(
    rows: Sequence[Row], answers: Sequence[ft.JobPrediction], names: Sequence[str]
) -> Iterator[tuple[str, ...]]:
    for row, answer in zip(rows, answers, strict=True):
        ours = compared_bytes(row, answer)
        sizes = {part.name: part.bytes for part in answer.memory.parts}
        yield (
            row.name,
            f"{row.bytes / 1e9:.2f}",
            f"{ours / 1e9:.2f}",
            f"{ours / row.bytes - 1:+.1%}",
            *(f"{sizes.get(name, 0.0) / 1e9:.2f}" for name in names),
        )
