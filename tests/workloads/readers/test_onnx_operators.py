"""Each ONNX operator computes what the ONNX project's reference implementation computes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from foretrain.errors import InvalidRequest
from foretrain.workloads.readers.onnx_module import KNOWN, OnnxModule

RANDOM = np.random.default_rng(0)
IMAGE = RANDOM.standard_normal((2, 4, 6, 6), dtype=np.float32)
MATRIX = RANDOM.standard_normal((3, 4), dtype=np.float32)
POSITIVE = np.abs(MATRIX) + 0.5


def normal(*shape: int) -> Any:
    return RANDOM.standard_normal(shape, dtype=np.float32)


def whole(*values: int) -> Any:
    return np.array(values, dtype=np.int64)


def floats(*values: float) -> Any:
    return np.array(values, dtype=np.float32)


Case = tuple[str, Any, list[Any], dict[str, Any]]
"""An operator, the data it works on, its further inputs as initializers, and its attributes."""

CASES: list[Case] = [
    ("Conv", IMAGE, [normal(5, 4, 3, 3), normal(5)], {"pads": [1, 1, 1, 1], "strides": [2, 2]}),
    ("Conv", IMAGE, [normal(4, 2, 3, 3)], {"group": 2, "pads": [0, 0, 1, 1]}),
    ("Conv", IMAGE, [normal(5, 4, 3, 3)], {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    ("Conv", normal(2, 4, 9), [normal(5, 4, 3)], {"dilations": [2]}),
    ("ConvTranspose", IMAGE, [normal(4, 5, 2, 2), normal(5)], {"strides": [2, 2]}),
    ("MaxPool", IMAGE, [], {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
    ("AveragePool", IMAGE, [], {"kernel_shape": [2, 2], "strides": [2, 2]}),
    ("AveragePool", IMAGE, [], {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "count_include_pad": 1}),
    ("GlobalAveragePool", IMAGE, [], {}),
    ("GlobalMaxPool", IMAGE, [], {}),
    ("BatchNormalization", IMAGE, [normal(4), normal(4), normal(4), np.abs(normal(4)) + 1], {}),
    ("InstanceNormalization", IMAGE, [normal(4), normal(4)], {}),
    ("LayerNormalization", MATRIX, [normal(4), normal(4)], {}),
    ("Gemm", MATRIX, [normal(5, 4), normal(5)], {"transB": 1}),
    ("Gemm", MATRIX, [normal(3, 5), normal(4, 5)], {"transA": 1, "alpha": 0.5, "beta": 2.0}),
    ("MatMul", normal(2, 3, 4), [normal(4, 5)], {}),
    ("Einsum", MATRIX, [normal(4, 5)], {"equation": "ij,jk->ki"}),
    ("Softmax", normal(2, 3, 4), [], {"axis": 1}),
    ("LogSoftmax", MATRIX, [], {}),
    ("Relu", MATRIX, [], {}),
    ("LeakyRelu", MATRIX, [], {"alpha": 0.2}),
    ("PRelu", MATRIX, [normal(4)], {}),
    ("Elu", MATRIX, [], {}),
    ("Selu", MATRIX, [], {}),
    ("Celu", MATRIX, [], {"alpha": 2.0}),
    ("Sigmoid", MATRIX, [], {}),
    ("HardSigmoid", MATRIX, [], {}),
    ("HardSwish", 4 * MATRIX, [], {}),
    ("Tanh", MATRIX, [], {}),
    ("Softplus", MATRIX, [], {}),
    ("Softsign", MATRIX, [], {}),
    ("Mish", MATRIX, [], {}),
    ("Gelu", MATRIX, [], {}),
    ("Gelu", MATRIX, [], {"approximate": "tanh"}),
    ("Clip", MATRIX, [np.float32(-0.5), np.float32(0.5)], {}),
    ("Dropout", MATRIX, [], {}),
    ("Resize", IMAGE, [floats(), floats(1, 1, 2, 2)], {"mode": "nearest",
        "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}),
    ("Resize", IMAGE, [floats(), floats(), whole(2, 4, 9, 12)], {"mode": "linear"}),
    ("Add", MATRIX, [normal(4)], {}),
    ("Sub", MATRIX, [normal(3, 1)], {}),
    ("Mul", MATRIX, [np.float32(3.0)], {}),
    ("Div", MATRIX, [POSITIVE], {}),
    ("Div", whole(7, -7, 8), [whole(2, 2, 3)], {}),
    ("Pow", POSITIVE, [np.float32(2.0)], {}),
    ("Mod", whole(7, -7, 8), [whole(3, 3, 3)], {}),
    ("Sqrt", POSITIVE, [], {}),
    ("Exp", MATRIX, [], {}),
    ("Log", POSITIVE, [], {}),
    ("Neg", MATRIX, [], {}),
    ("Abs", MATRIX, [], {}),
    ("Floor", MATRIX, [], {}),
    ("Ceil", MATRIX, [], {}),
    ("Round", MATRIX, [], {}),
    ("Sign", MATRIX, [], {}),
    ("Reciprocal", POSITIVE, [], {}),
    ("Sin", MATRIX, [], {}),
    ("Cos", MATRIX, [], {}),
    ("Erf", MATRIX, [], {}),
    ("And", MATRIX > 0, [POSITIVE > 1], {}),
    ("Or", MATRIX > 0, [POSITIVE > 1], {}),
    ("Not", MATRIX > 0, [], {}),
    ("Equal", whole(1, 2), [whole(1, 3)], {}),
    ("Greater", MATRIX, [np.float32(0)], {}),
    ("Less", MATRIX, [np.float32(0)], {}),
    ("GreaterOrEqual", MATRIX, [np.float32(0)], {}),
    ("LessOrEqual", MATRIX, [np.float32(0)], {}),
    ("Where", MATRIX > 0, [MATRIX, np.float32(0)], {}),
    ("IsNaN", MATRIX, [], {}),
    ("Max", MATRIX, [normal(4), normal(3, 1)], {}),
    ("Min", MATRIX, [normal(4)], {}),
    ("Sum", MATRIX, [normal(4), normal(4)], {}),
    ("ReduceMean", IMAGE, [whole(2, 3)], {"keepdims": 0}),
    ("ReduceSum", IMAGE, [], {}),
    ("ReduceMax", IMAGE, [whole(-1)], {}),
    ("ReduceMin", IMAGE, [whole(1)], {}),
    ("ReduceProd", MATRIX, [whole(0, 1)], {"keepdims": 0}),
    ("ReduceL2", MATRIX, [whole(1)], {}),
    ("ArgMax", MATRIX, [], {"axis": 1}),
    ("ArgMin", MATRIX, [], {"axis": 0, "keepdims": 0}),
    ("Shape", IMAGE, [], {"start": 1}),
    ("Size", IMAGE, [], {}),
    ("ConstantOfShape", whole(2, 3), [], {"value": helper.make_tensor("v", TensorProto.FLOAT, [1], [2.5])}),
    ("Identity", MATRIX, [], {}),
    ("Reshape", IMAGE, [whole(0, -1)], {}),
    ("Transpose", IMAGE, [], {"perm": [0, 2, 3, 1]}),
    ("Transpose", MATRIX, [], {}),
    ("Flatten", IMAGE, [], {"axis": 2}),
    ("Squeeze", normal(1, 3, 1), [whole(0)], {}),
    ("Unsqueeze", MATRIX, [whole(0, -1)], {}),
    ("Concat", MATRIX, [normal(2, 4)], {"axis": 0}),
    ("Slice", IMAGE, [whole(1, -3), whole(3, 100), whole(1, 2)], {}),
    ("Slice", MATRIX, [whole(-1), whole(-100), whole(1), whole(-1)], {}),
    ("Split", normal(6, 2), [whole(2, 4)], {}),
    ("Gather", MATRIX, [whole(2, 0)], {}),
    ("Gather", MATRIX, [np.int64(1)], {"axis": 1}),
    ("Gather", normal(2, 3, 4), [np.array([[0, 2], [1, 1]])], {"axis": 1}),
    ("GatherElements", MATRIX, [np.array([[0, 1], [2, 3], [1, 0]])], {"axis": 1}),
    ("Expand", normal(3, 1), [whole(2, 1, 4)], {}),
    ("Tile", MATRIX, [whole(2, 1)], {}),
    ("Cast", MATRIX, [], {"to": TensorProto.INT64}),
    ("CastLike", MATRIX, [whole(1)], {}),
    ("Pad", IMAGE, [whole(0, 0, 1, 2, 0, 0, 3, 0), np.float32(1.5)], {}),
    ("Pad", IMAGE, [whole(0, 0, 1, 2, 0, 0, 3, 0)], {"mode": "reflect"}),
    ("Range", np.int64(2), [np.int64(10), np.int64(3)], {}),
    ("Trilu", normal(4, 4), [np.int64(1)], {"upper": 0}),
    ("TopK", MATRIX, [whole(2)], {"axis": 1}),
    ("CumSum", MATRIX, [np.int64(1)], {}),
    ("DepthToSpace", IMAGE, [], {"blocksize": 2}),
    ("DepthToSpace", IMAGE, [], {"blocksize": 2, "mode": "CRD"}),
    ("LSTM", normal(5, 2, 3), [normal(1, 16, 3), normal(1, 16, 4), normal(1, 32)], {"hidden_size": 4}),
    ("LSTM", normal(5, 2, 3), [normal(2, 16, 3), normal(2, 16, 4), normal(2, 32)],
        {"hidden_size": 4, "direction": "bidirectional"}),
    ("GRU", normal(5, 2, 3), [normal(1, 12, 3), normal(1, 12, 4), normal(1, 24)],
        {"hidden_size": 4, "linear_before_reset": 1}),
    ("RNN", normal(5, 2, 3), [normal(1, 4, 3), normal(1, 4, 4), normal(1, 8)], {"hidden_size": 4}),
]  # fmt: skip

UNREFERENCED = {"Constant", "LRN", "RMSNormalization", "GroupNormalization", "Upsample"}
"""Operators tested below: without inputs, of versions the reference lacks, or (LRN) where it errs: it leaves
the last channel of each window out."""


def model_of(case: Case, opset: int = 20) -> Any:
    kind, data, others, attributes = case
    names = [f"i{position}" for position in range(len(others))]
    arrays = [
        numpy_helper.from_array(np.asarray(other), name) for other, name in zip(others, names, strict=True)
    ]
    given = [
        "x",
        *(name if np.asarray(other).size else "" for other, name in zip(others, names, strict=True)),
    ]
    outputs = ["y", "y2"] if kind in ("Split", "TopK") else ["y"]
    node = helper.make_node(kind, given, outputs, **attributes)
    element = helper.np_dtype_to_tensor_dtype(np.asarray(data).dtype)
    graph = helper.make_graph(
        [node],
        "graph",
        [helper.make_tensor_value_info("x", element, np.asarray(data).shape)],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        arrays,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_against_the_reference(case: Case) -> None:
    model = model_of(case)
    expected = ReferenceEvaluator(model).run(None, {"x": case[1]})
    module = OnnxModule(model, Path()).eval()
    with torch.no_grad():
        found = module(torch.from_numpy(np.array(case[1])))
    found = found if isinstance(found, tuple) else (found,)
    for ours, theirs in zip(found, expected, strict=True):
        assert tuple(ours.shape) == np.asarray(theirs).shape
        np.testing.assert_allclose(ours.numpy(), theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "case", [case for case in CASES if case[0] not in ("Range", "ConstantOfShape")], ids=lambda case: case[0]
)
def test_without_data_the_shape_is_the_same(case: Case) -> None:
    """For all whose data is not itself a shape."""
    model = model_of(case)
    real = OnnxModule(model, Path()).eval()(torch.from_numpy(np.array(case[1])))
    with torch.device("meta"):
        module = OnnxModule(model, Path()).eval()
        bare = module(torch.from_numpy(np.array(case[1])).to("meta"))
    pairs = zip(*((value if isinstance(value, tuple) else (value,)) for value in (real, bare)), strict=True)
    for ours, without in pairs:
        assert (without.shape, without.dtype) == (ours.shape, ours.dtype)
        assert without.is_meta or case[0] in ("Shape", "Size")


def test_every_operator_known_has_a_case() -> None:
    assert {case[0] for case in CASES} | UNREFERENCED == KNOWN


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [({"value_ints": [1, 2]}, [1, 2]), ({"value_float": 0.5}, 0.5), ({"value_int": 3}, 3)],
)
def test_constants(attributes: dict[str, Any], expected: Any) -> None:
    node = helper.make_node("Constant", [], ["c"], **attributes)
    add = helper.make_node("Add", ["x", "c"], ["y"])
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ())]
    graph = helper.make_graph([node, add], "g", inputs, [helper.make_empty_tensor_value_info("y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])
    assert OnnxModule(model, Path())(torch.tensor(0.0)).tolist() == expected


def test_norms_of_newer_versions() -> None:
    scale, bias = normal(4), normal(4)
    grouped = OnnxModule(
        model_of(("GroupNormalization", IMAGE, [scale, bias], {"num_groups": 2}), 21), Path()
    )
    x = torch.from_numpy(IMAGE)
    groups = x.reshape(2, 2, -1)
    normed = (groups - groups.mean(-1, keepdim=True)) / (
        groups.var(-1, keepdim=True, correction=0) + 1e-5
    ).sqrt()
    shape = (1, 4, 1, 1)
    expected = normed.reshape(x.shape) * torch.from_numpy(scale).reshape(shape)
    assert torch.allclose(grouped(x), expected + torch.from_numpy(bias).reshape(shape), atol=1e-5)
    roots = OnnxModule(model_of(("RMSNormalization", MATRIX, [scale], {}), 23), Path())
    m = torch.from_numpy(MATRIX)
    wanted = m / (m.square().mean(-1, keepdim=True) + 1e-5).sqrt() * torch.from_numpy(scale)
    assert torch.allclose(roots(m), wanted, atol=1e-5)


def test_uneven_padding_of_a_maximum() -> None:
    """A column and a row of nothing after the image: the last of each is the maximum of what is left."""
    x = torch.arange(9.0).reshape(1, 1, 3, 3)
    case: Case = ("MaxPool", x.numpy(), [], {"kernel_shape": [2, 2], "pads": [0, 0, 1, 1]})
    assert OnnxModule(model_of(case), Path())(x)[0, 0].tolist() == [[4, 5, 5], [7, 8, 8], [7, 8, 8]]


def test_local_response_norm_by_its_formula() -> None:
    """y = x / (bias + alpha/size · sum of the squares of the neighbouring channels)^beta."""
    x = torch.tensor([1.0, 2.0, 3.0]).reshape(1, 3, 1, 1)
    case: Case = ("LRN", x.numpy(), [], {"size": 3, "alpha": 3.0, "beta": 1.0, "bias": 1.0})
    found = OnnxModule(model_of(case), Path())(x).flatten().tolist()
    assert found == pytest.approx([1 / (1 + 1 + 4), 2 / (1 + 1 + 4 + 9), 3 / (1 + 4 + 9)])


def test_softmax_before_version_13_flattens_what_follows_its_axis() -> None:
    x = normal(2, 3, 4)
    old = OnnxModule(model_of(("Softmax", x, [], {}), 11), Path())(torch.from_numpy(x))
    assert torch.allclose(old.flatten(1).sum(1), torch.ones(2))


def test_upsample_is_the_older_resize() -> None:
    case: Case = ("Upsample", IMAGE, [floats(1, 1, 2, 3)], {"mode": "nearest"})
    assert OnnxModule(model_of(case, 9), Path())(torch.from_numpy(IMAGE)).shape == (2, 4, 12, 18)


@pytest.mark.parametrize(
    ("case", "message"),
    [
        (("GRU", normal(5, 2, 3), [normal(1, 12, 3), normal(1, 12, 4)], {"hidden_size": 4}), "reset=0"),
        (("RNN", normal(5, 2, 3), [normal(1, 4, 3), normal(1, 4, 4)],
            {"hidden_size": 4, "direction": "reverse"}), "direction 'reverse'"),
        (("RNN", normal(2, 5, 3), [normal(1, 4, 3), normal(1, 4, 4)],
            {"hidden_size": 4, "layout": 1}), "batch first"),
        (("ConvTranspose", IMAGE, [normal(4, 5, 2, 2)], {"pads": [0, 0, 1, 1]}), "uneven"),
        (("AveragePool", IMAGE, [], {"kernel_shape": [2, 2], "pads": [0, 0, 1, 1]}), "uneven"),
    ],
)  # fmt: skip
def test_forms_that_torch_cannot_run_are_refused(case: Case, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        OnnxModule(model_of(case), Path())(torch.from_numpy(case[1]))
