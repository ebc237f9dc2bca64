"""A family gives the very graph a new trace would give."""

import pytest
from tests.support.small_models import MODELS, graph

from foretrain.workloads.family import NotDerivable, RecordedAxis, derive_family
from foretrain.workloads.graph import Graph
from foretrain.workloads.rules import operators


def facts(traced: Graph) -> list[object]:
    works = [(op.work, op.module) for op in operators(traced)]
    memory = [(traced.specs[b.spec], b.born, b.dies, b.role) for b in traced.buffers]
    return [works, memory, traced.samples, traced.parameters]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("batch", [2, 3, 16, 100])
def test_re_derived_equals_traced(name: str, precision: str, batch: int) -> None:
    recorded = derive_family(
        [RecordedAxis("batch", 2, 4)],
        [graph(name, 2, precision=precision), graph(name, 4, precision=precision)],
    )
    assert facts(recorded.at({"batch": batch})) == facts(graph(name, batch, precision=precision))


def test_graphs_that_differ_in_structure_make_no_family() -> None:
    with pytest.raises(NotDerivable, match="calls at one size"):
        derive_family([RecordedAxis("batch", 2, 4)], [graph("mlp", 2), graph("conv", 4)])


def test_sizes_must_come_out_whole() -> None:
    recorded = derive_family([RecordedAxis("batch", 2, 4)], [graph("mlp", 2), graph("mlp", 4)])
    with pytest.raises(NotDerivable, match="would be"):
        derive_family([RecordedAxis("batch", 2, 7)], [graph("mlp", 2), graph("mlp", 4)]).at({"batch": 3})
    assert recorded.at({"batch": 3}).samples == 3
