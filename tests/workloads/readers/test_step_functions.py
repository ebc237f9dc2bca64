"""Step functions: several networks and optimizers in one step, counted by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from foretrain.errors import InvalidRequest
from foretrain.workloads.graph import Graph, Phase, Role
from foretrain.workloads.ops import MATRIX_KINDS, Op
from foretrain.workloads.options import ResolvedOptions
from foretrain.workloads.readers import read_model
from foretrain.workloads.rules import operators
from foretrain.workloads.tracing.step import trace
from foretrain.workloads.zoo import BuildOptions

GAN = """
import torch

def gan(batch=4):
    making = torch.nn.Linear(5, 3, bias=False)
    judging = torch.nn.Linear(3, 1, bias=False)
    first = torch.optim.Adam(judging.parameters())
    second = torch.optim.SGD(making.parameters(), lr=0.1)

    def step(real):
        fakes = making(torch.randn(len(real), 5))
        first.zero_grad()
        (judging(fakes.detach()) - judging(real)).mean().backward()
        first.step()
        second.zero_grad()
        judging(fakes).mean().backward()
        second.step()

    return step, torch.rand(batch, 3)
"""


def gan_graph(folder: Path, text: str = GAN, options: ResolvedOptions | None = None, batch: int = 4) -> Graph:
    (folder / "gan.py").write_text(text)
    example = read_model(f"{folder / 'gan.py'}:gan").example(BuildOptions(batch=batch))
    return trace(example, options or ResolvedOptions())


def products(graph: Graph, phase: Phase) -> list[Op]:
    return [op for op in operators(graph) if op.work.kind in MATRIX_KINDS and op.phase is phase]


def test_all_networks_losses_and_optimizers_are_counted(tmp_path: Path) -> None:
    graph = gan_graph(tmp_path)
    assert (graph.parameters, graph.trainable_parameters, graph.samples) == (5 * 3 + 3 * 1, 18, 4)
    forward = sum(op.work.flop for op in products(graph, Phase.FORWARD))
    assert forward == 2 * 4 * (5 * 3 + 3 * (3 * 1))  # a fake, and judgements of fake, real and fake again
    backward = sum(op.work.flop for op in products(graph, Phase.BACKWARD))
    of_judge = 2 * 2 * 4 * 3  # its weight, from fakes and real ones; their inputs need no gradient
    of_maker = 2 * 4 * (2 * 3 + 5 * 3)  # through the judge (and its weight again), then the maker's weight
    assert backward == of_judge + of_maker


def test_memory_of_both_optimizers(tmp_path: Path) -> None:
    graph = gan_graph(tmp_path)
    state = [
        buffer
        for buffer in graph.buffers
        if buffer.role is Role.OPTIMIZER_STATE and graph.specs[buffer.spec].shape
    ]
    assert (
        sum(graph.specs[buffer.spec].elements for buffer in state) == 2 * 3
    )  # Adam on the judge, SGD has none
    gradients = {buffer.name for buffer in graph.buffers if buffer.role is Role.GRADIENT}
    assert gradients == {"making.weight", "judging.weight"}


def test_phases_follow_the_calls_of_the_function(tmp_path: Path) -> None:
    phases = [call.phase for call in gan_graph(tmp_path).calls]
    changes = [phase for index, phase in enumerate(phases) if index == 0 or phases[index - 1] is not phase]
    one_network = [Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER]
    assert [phase.value for phase in changes] == [phase.value for phase in 2 * one_network]


def test_the_batch_follows_and_the_note_names_the_optimizers(tmp_path: Path) -> None:
    graph = gan_graph(tmp_path, batch=8)
    assert graph.samples == 8
    assert graph.notes == ("the step function updates with its own optimizers: Adam, SGD",)


def test_mixed_precision_reaches_every_forward_pass(tmp_path: Path) -> None:
    graph = gan_graph(tmp_path, options=ResolvedOptions(precision="bf16"))
    assert {op.work.dtype for op in products(graph, Phase.FORWARD)} == {"bfloat16"}


def test_a_method_of_an_object_is_a_step_too(tmp_path: Path) -> None:
    text = """
import torch

class Trainer:
    def __init__(self):
        self.nets = {"a": torch.nn.Linear(2, 2, bias=False)}
        self.optimizers = [torch.optim.SGD(self.nets["a"].parameters(), lr=1.0)]
    def step(self, x):
        self.nets["a"](x).sum().backward()
        self.optimizers[0].step()
        self.optimizers[0].zero_grad()

def gan():
    return Trainer().step, torch.rand(4, 2)
"""
    assert gan_graph(tmp_path, text).parameters == 4


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "import torch\ndef gan():\n    return (lambda x: None), torch.rand(2, 2)\n",
            "refers to no optimizer",
        ),
        (
            GAN.replace("return step, torch.rand(batch, 3)", "return step, torch.rand(batch, 3), sum"),
            "has itself",
        ),
    ],
)
def test_what_is_no_step_function(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        gan_graph(tmp_path, text)


@pytest.mark.parametrize("options", [ResolvedOptions(forward_only=True), ResolvedOptions(optimizer=None)])
def test_parts_of_a_whole_step_cannot_be_left_out(tmp_path: Path, options: ResolvedOptions) -> None:
    with pytest.raises(InvalidRequest, match="leave out"):
        gan_graph(tmp_path, options=options)


def test_the_example_in_the_documentation() -> None:
    file = Path(__file__).parents[3] / "examples" / "dcgan.py"
    graph = trace(read_model(f"{file}:dcgan").example(BuildOptions(batch=2)), ResolvedOptions())
    convolutions = 16 * (100 * 512 + 512 * 256 + 256 * 128 + 128 * 64 + 64 * 3)  # of 4 x 4, in the generator
    convolutions += 16 * (3 * 64 + 64 * 128 + 128 * 256 + 256 * 512 + 512 * 1)  # and in the discriminator
    norms = 2 * (512 + 256 + 128 + 64) + 2 * (128 + 256 + 512)
    assert graph.parameters == convolutions + norms
