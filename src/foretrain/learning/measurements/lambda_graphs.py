"""The tasks of Lambda's benchmark whose graph is known: ResNet-50, BERT on SQuAD, NCF.

BERT answers with two numbers for each token, which costs nothing beside its blocks: the zoo's BERT with two
classes stands for it, at the 384 tokens of NVIDIA's script, attention step by step.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from foretrain.facts.devices import Device
from foretrain.learning.measurements.lambda_steps import LambdaRun
from foretrain.workloads.graph import Graph
from foretrain.workloads.options import StepOptions
from foretrain.workloads.readers._base import ModelSource
from foretrain.workloads.readers.zoo_model import ZooModel
from foretrain.workloads.workload import Workload, graph_at
from foretrain.workloads.zoo.catalogue import BuildOptions, Sizes

if TYPE_CHECKING:
    from foretrain.workloads.example import Example

_TOKENS = 384
_BERT = {
    "bert_base_squad": {"layers": 12, "width": 768, "heads": 12, "hidden": 3072},
    "bert_large_squad": {"layers": 24, "width": 1024, "heads": 16, "hidden": 4096},
}
TASKS = frozenset({"resnet50", "ncf", *_BERT})


@dataclass(frozen=True)
class SquadBert(ModelSource):
    """BERT as it is fine-tuned on SQuAD."""

    name: str
    kind: str = field(default="squad", init=False)
    runs_user_code: bool = field(default=False, init=False)

    def fingerprint(self) -> str:
        return f"{self.name} {ZooModel('bert-base', 'bert-base').fingerprint()}"

    def example(self, options: BuildOptions) -> Example:
        import torch

        from foretrain.workloads.zoo.bert import bert

        sizes = Sizes(options.batch or 1, options.seq_len or _TOKENS, attention=options.attention)
        with torch.device("meta"):
            return bert(sizes, classes=2, **_BERT[self.name])


def graph(run: LambdaRun, target: Device) -> Graph:
    """One step of a run, at its batch."""
    has_tf32 = target.sheet.has("tf32_tensor_flop_per_second")
    precision = "fp16" if run.precision == "fp16" else "tf32" if has_tf32 else "fp32"
    if run.task in _BERT:
        source: ModelSource = SquadBert(run.task)
        sizes = BuildOptions(seq_len=_TOKENS, attention="eager")
        options = StepOptions(precision=precision, optimizer="adam", attention="eager")
    else:
        source, sizes = ZooModel(run.task, run.task), BuildOptions()
        optimizer = "momentum" if run.task == "resnet50" else "adam"
        options = StepOptions(precision=precision, optimizer=optimizer)
    return graph_at(Workload(source, sizes, options), max(2, round(run.batch)))
