"""A model of many equal blocks is the very graph that tracing all of them gives."""

from dataclasses import fields, replace

import pytest

from foretrain.workloads.cache import dump, load
from foretrain.workloads.depth import NotDerivable, Numbered, align, deepen, split_name
from foretrain.workloads.graph import Graph
from foretrain.workloads.lora import LoraOptions
from foretrain.workloads.options import ResolvedOptions
from foretrain.workloads.readers import read_model
from foretrain.workloads.rules import operators
from foretrain.workloads.workload import FEW_BLOCKS, Workload, record_family, record_workload, trace_workload
from foretrain.workloads.zoo import BuildOptions, zoo

MODELS = (
    "bert-base", "bert-large-classifier", "nanogpt-shakespeare", "gpt2", "opt-1.3b", "llama2-7b", "llama3-8b",
    "llama3.2-1b", "t5-small", "transformer-base", "vit-b-16", "gpt3-xl-neusight",
    "whisper-small", "sd3-medium", "flux1-dev",
)  # fmt: skip
"""One of every kind of block in the zoo."""
BF16 = ResolvedOptions(precision="bf16")
OPTIONS = {
    "mixed": BF16,
    "checkpointing": replace(BF16, checkpoint_activations=True),
    "half": replace(BF16, weights="bf16", master_weights=True, gradients="fp32"),
    "released": ResolvedOptions(precision="fp32", optimizer="adafactor", gradient_release=True),
    "forward": replace(BF16, forward_only=True),
}


def traced(name: str, blocks: int, options: ResolvedOptions, batch: int = 2) -> Graph:
    return trace_workload(Workload(read_model(name).with_blocks(blocks), BuildOptions(batch=batch), options))


def assert_same(one: Graph, other: Graph) -> None:
    for each in fields(Graph):
        if each.compare:
            assert getattr(one, each.name) == getattr(other, each.name), each.name


@pytest.mark.parametrize(
    ("name", "how"),
    [(name, "mixed") for name in MODELS]
    + [(name, how) for how in OPTIONS for name in ("bert-base", "llama3.2-1b", "vit-b-16") if how != "mixed"],
)
def test_derived_blocks_are_those_of_a_trace(name: str, how: str) -> None:
    few, more = (traced(name, blocks, OPTIONS[how]) for blocks in FEW_BLOCKS)
    assert_same(deepen(few, more, 3), traced(name, FEW_BLOCKS[1] + 3, OPTIONS[how]))


_STACKS = (":transformer", ":t5", ":switch", ":whisper", ":mmdit", ":flux")


def test_every_transformer_of_the_zoo_counts_its_blocks() -> None:
    counted = {entry.name for entry in zoo().values() if entry.blocks}
    assert counted == {
        entry.name
        for entry in zoo().values()
        if "transformers" in entry.builder or entry.builder.endswith(_STACKS)
    }


def test_deep_models_are_recorded_by_a_few_of_their_blocks() -> None:
    workload = Workload(read_model("gpt2-medium"), BuildOptions(batch=3), BF16)
    graph = record_workload(workload)
    assert graph.repeats is not None
    assert [len(each.trained) for each in graph.repeats[:2]] == [4 * 12 + 4, 5 * 12 + 4]
    assert_same(graph, trace_workload(workload))
    again = load(dump(graph))
    assert isinstance(again, Graph)
    assert_same(again, graph)


@pytest.mark.parametrize("options", [BF16, replace(BF16, precision="fp8"), replace(BF16, optimizer="muon")])
@pytest.mark.parametrize("lora", [None, LoraOptions(targets=("all-linear",), quantised=True, dora=True)])
def test_adapters_and_optimizers_of_all_blocks(options: ResolvedOptions, lora: LoraOptions | None) -> None:
    workload = Workload(read_model("llama3.2-1b"), BuildOptions(batch=2), options, lora)
    graph = record_workload(workload)
    assert graph.repeats is not None
    assert_same(graph, trace_workload(workload))


def test_a_family_has_every_batch_at_every_depth() -> None:
    workload = Workload(read_model("gpt2-medium"), BuildOptions(), BF16)
    family = record_family(workload)
    assert family is not None
    assert family.deeper is not None
    derived, whole = family.at({"batch": 5}), trace_workload(workload.at(batch=5))
    assert operators(derived) == operators(whole)
    assert [each._replace(spec=0) for each in derived.buffers] == [
        each._replace(spec=0) for each in whole.buffers
    ]
    assert [derived.specs[each.spec] for each in derived.buffers] == [
        whole.specs[each.spec] for each in whole.buffers
    ]


def test_runs_are_found() -> None:
    """The example of the module: `e fg fg fg fg l L GF GF GF GF E` and one block more."""
    rows = [
        [Numbered(letter, letter, ()) for letter in "e" + "fg" * blocks + "lL" + "GF" * blocks + "E"]
        for blocks in (4, 5)
    ]
    assert [(run.length, run.low_count, run.high_count) for run in align(*rows).runs] == [
        (2, 2, 3),
        (2, 2, 3),
    ]


def test_unequal_blocks_are_not_derivable() -> None:
    few, more = (traced("nanogpt-shakespeare", blocks, BF16) for blocks in FEW_BLOCKS)
    odd = more.calls[40]
    changed = replace(more, calls=(*more.calls[:40], odd._replace(settings={"odd": 1}), *more.calls[41:]))
    with pytest.raises(NotDerivable):
        deepen(few, changed, 3)
    with pytest.raises(NotDerivable):
        deepen(few, replace(more, calls=more.calls[:-3]), 3)


def test_numbers_of_names() -> None:
    assert split_name("blocks.7.mlp.0.fc1") == ("blocks.{}.mlp.{}.fc1", (7, 0))
    assert split_name("all-gather layers.12 3") == ("all-gather layers.{} {}", (12, 3))
