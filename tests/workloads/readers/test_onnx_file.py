"""ONNX files: read, trained, refused."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
from onnx import TensorProto, helper

from foretrain.errors import InvalidData, InvalidRequest, UnknownName
from foretrain.workloads.ops import Direction, Kind
from foretrain.workloads.options import ResolvedOptions
from foretrain.workloads.readers import read_model
from foretrain.workloads.readers.onnx_module import OnnxModule
from foretrain.workloads.rules import operators, unknown_names
from foretrain.workloads.tracing.step import trace
from foretrain.workloads.zoo import BuildOptions, build

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def saved(
    folder: Path, nodes: list[Any], inputs: list[Any], initializers: list[Any], opset: int = 17
) -> Path:
    """A model whose output is the value `y`, as a file."""
    output = helper.make_tensor_value_info("y", FLOAT, (None, None))
    graph = helper.make_graph(nodes, "graph", inputs, [output], initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    path = folder / "net.onnx"
    onnx.save(model, str(path))
    return path


def value(name: str, kind: int, *shape: int | str) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def weight(name: str, *shape: int) -> Any:
    return helper.make_tensor(name, FLOAT, shape, torch.rand(shape).flatten().tolist())


def integers(name: str, *values: int) -> Any:
    return helper.make_tensor(name, INT64, (len(values),), values)


def linear(folder: Path, batch: int | str = "batch") -> Path:
    node = helper.make_node("Gemm", ["x", "w", "b"], ["y"], transB=1)
    return saved(folder, [node], [value("x", FLOAT, batch, 8)], [weight("w", 3, 8), weight("b", 3)])


def test_a_linear_layer_and_its_gradient(tmp_path: Path) -> None:
    source = read_model(str(linear(tmp_path)))
    assert (source.kind, source.runs_user_code) == ("onnx", False)
    graph = trace(source.example(BuildOptions(batch=4)), ResolvedOptions())
    assert graph.parameters == graph.trainable_parameters == 3 * 8 + 3
    linears = [op.work for op in operators(graph) if op.work.kind is Kind.LINEAR]
    assert [work.direction for work in linears] == [Direction.FORWARD, Direction.WEIGHT_GRADIENT]
    assert [work.flop for work in linears] == [2 * 4 * 3 * 8] * 2
    assert graph.samples == 4


def test_a_fixed_batch_stays(tmp_path: Path) -> None:
    source = read_model(str(linear(tmp_path, batch=2)))
    assert source.example(BuildOptions()).samples == 2
    with pytest.raises(InvalidRequest, match="fixes the batch of 'x' at 2"):
        source.example(BuildOptions(batch=3))


def test_shapes_that_the_graph_computes_are_computed_while_the_data_has_no_values(tmp_path: Path) -> None:
    """ids -> embedding -> reshape to (batch · length, width) by the graph's own arithmetic."""
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["found"]),
        helper.make_node("Shape", ["ids"], ["shape"]),
        helper.make_node("ReduceProd", ["shape"], ["rows"], keepdims=1, axes=[0]),
        helper.make_node("Concat", ["rows", "width"], ["flat"], axis=0),
        helper.make_node("Reshape", ["found", "flat"], ["y"]),
    ]
    ids = value("ids", INT64, "batch", "length")
    path = saved(tmp_path, nodes, [ids], [weight("table", 10, 4), integers("width", 4)])
    example = read_model(str(path)).example(BuildOptions(batch=2, seq_len=5))
    graph = trace(example, ResolvedOptions())
    assert example.module(*example.inputs).shape == (10, 4)
    assert graph.tokens == 10
    assert graph.parameters == 40
    with pytest.raises(InvalidRequest, match="give seq_len"):
        read_model(str(path)).example(BuildOptions(batch=2))


def test_a_shape_that_depends_on_the_data_is_named_as_such(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["found"]),
        helper.make_node("Reshape", ["found", "ids"], ["y"]),
    ]
    path = saved(tmp_path, nodes, [value("ids", INT64, 1)], [weight("table", 10, 4)])
    with pytest.raises(InvalidRequest, match="depends on the data"):
        trace(read_model(str(path)).example(BuildOptions()), ResolvedOptions())


def test_a_resnet18_written_by_torch_has_the_work_of_the_zoo_s(tmp_path: Path) -> None:
    """Exported in training mode, so that its batch norms are there: the same FLOP, forward and backward."""
    example = build("resnet18", None)
    path = tmp_path / "resnet18.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            example.module,
            (torch.rand(1, 3, 64, 64),),
            str(path),
            dynamo=False,
            training=torch.onnx.TrainingMode.TRAINING,
            do_constant_folding=False,
            input_names=["x"],
            dynamic_axes={"x": {0: "batch"}},
        )
    read = trace(read_model(str(path)).example(BuildOptions(batch=2)), ResolvedOptions(precision="bf16"))
    own = trace(
        read_model("resnet18").example(BuildOptions(2, image_size=64)), ResolvedOptions(precision="bf16")
    )
    assert read.parameters == own.parameters == 11_689_512
    assert unknown_names(operators(read)) == ()
    assert _matrix_flop(read) == _matrix_flop(own) > 1e9
    norms = [sum("batch_norm" in call.name for call in graph.calls) for graph in (read, own)]
    assert norms == [2 * 20, 2 * 20]


def _matrix_flop(graph: Any) -> float:
    kinds = (Kind.CONVOLUTION, Kind.LINEAR)
    return sum(op.work.flop for op in operators(graph) if op.work.kind in kinds)


def test_a_recurrent_node_is_one_fused_operator(tmp_path: Path) -> None:
    node = helper.make_node("LSTM", ["x", "w", "r", "b"], ["y", "", ""], hidden_size=5)
    weights = [weight("w", 1, 20, 3), weight("r", 1, 20, 5), weight("b", 1, 40)]
    path = saved(tmp_path, [node], [value("x", FLOAT, 7, 2, 3)], weights)
    graph = trace(read_model(str(path)).example(BuildOptions()), ResolvedOptions())
    assert graph.parameters == 20 * 3 + 20 * 5 + 40
    assert sum(call.name == "foretrain.rnn" for call in graph.calls) == 1


def test_an_unknown_operator_is_named(tmp_path: Path) -> None:
    node = helper.make_node("NonMaxSuppression", ["x", "s"], ["y"], name="select")
    inputs = [value("x", FLOAT, 1, 5, 4), value("s", FLOAT, 1, 1, 5)]
    with pytest.raises(UnknownName, match=r"NonMaxSuppression.*select"):
        read_model(str(saved(tmp_path, [node], inputs, [])))


def test_an_operator_of_another_domain_is_named_with_it(tmp_path: Path) -> None:
    node = helper.make_node("Relu", ["x"], ["y"], domain="com.example")
    graph = helper.make_graph([node], "g", [value("x", FLOAT, 1, 2)], [value("y", FLOAT, 1, 2)])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.example", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), str(tmp_path / "net.onnx"))
    with pytest.raises(UnknownName, match=r"com\.example\.Relu"):
        read_model(str(tmp_path / "net.onnx"))


@pytest.mark.parametrize("share", [0.0, 0.3, 0.6, 0.95])
def test_a_truncated_file_is_refused(tmp_path: Path, share: float) -> None:
    path = linear(tmp_path)
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(InvalidData, match=r"net\.onnx"):
        read_model(str(path))


def test_what_is_no_onnx_is_refused(tmp_path: Path) -> None:
    (tmp_path / "net.onnx").write_text("PK this is something else entirely\n")
    with pytest.raises(InvalidData, match=r"net\.onnx"):
        read_model(str(tmp_path / "net.onnx"))


def test_the_fingerprint_is_that_of_the_bytes(tmp_path: Path) -> None:
    first = read_model(str(linear(tmp_path, batch=2))).fingerprint()
    second = read_model(str(linear(tmp_path, batch=3))).fingerprint()
    assert first != second


def test_weights_are_read_where_values_are_wanted(tmp_path: Path) -> None:
    path = linear(tmp_path)
    module = OnnxModule(onnx.load(str(path)), path)
    x = torch.rand(4, 8)
    w, b = module.parameters()
    assert torch.allclose(module(x), x @ w.T + b)
    assert not any(parameter.is_meta for parameter in module.parameters())
