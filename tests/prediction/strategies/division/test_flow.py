"""Divided graphs of a family, which may list one spec twice."""

from foretrain.prediction.strategies.division.flow import Flow, divide
from foretrain.workloads.graph import Call, Graph, Phase, Spec

ONE = Spec((8, 4), "float32")


def test_a_spec_listed_twice_does_not_shift_the_shares() -> None:
    call = Call("aten.relu", Phase.FORWARD, "", (0,), (2,), (), (), {})
    graph = Graph((ONE, Spec((3,), "float32"), ONE), (call,), (), (), 1, 1, 0)
    share = divide(graph, Flow(inputs=[(1,)], outputs=[(1,)], buffers={}), 2)
    assert [share.specs[index].shape for index in (*share.calls[0].inputs, *share.calls[0].outputs)] == [
        (4, 4),
        (4, 4),
    ]
