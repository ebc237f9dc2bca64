"""The NeuSight suites: what a gradient of a layer is made of, and which cases are reported together."""

from __future__ import annotations

import pytest
from calibration.datasets.neusight import MeasuredPass, gradients
from calibration.datasets.works import product
from validation.report import Case

from foretrain.workloads.ops import Kind
from validation import backward_suite, neusight_suite


def test_the_gradient_of_a_bias_reads_the_gradient_of_the_output_once() -> None:
    layer = product(1, 8, 5, 3, "float32", is_linear=True, has_bias=True)
    first, _ = gradients(layer)
    summed = backward_suite._bias_gradient(first)
    assert summed.kind is Kind.REDUCTION
    assert summed.read_bytes == 8 * 5 * 4


def test_a_product_without_bias_has_no_such_gradient() -> None:
    first, _ = gradients(product(2, 8, 5, 3, "float32", is_linear=False))
    assert backward_suite._bias_gradient(first).kernels == 0


def measured(model: str, *, training: bool = False, compiled: bool = False) -> MeasuredPass:
    """A pass of one second on a P4."""
    return MeasuredPass(model, "p4", 1, 512, training, compiled, 1.0, 1.0, 0.0)


def test_forward_training_and_compiled_passes_are_reported_apart() -> None:
    found = [measured("a"), measured("a", compiled=True), measured("b", training=True)]
    cases = [Case(str(index), "p4", 1.0, {}) for index in range(3)]
    sets = {name: [case.name for case in group] for name, group in neusight_suite._sets(found, cases).items()}
    assert sets["forward, all"] == ["0", "1"]
    assert sets["forward, eager"] == ["0"]
    assert sets["forward, compiled"] == ["1"]
    assert sets["training"] == ["2"]
    assert sets["forward on p4"] == ["0", "1"]
    assert sets["b"] == ["2"]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("gpt2-large forward 4 x 1024 on p4", "75 W"),
        ("switch-xl-4 forward 1 x 512 on t4", "position bias"),
        ("gpt2-large compiled 4 x 1024 on a100-pcie-40gb", "torch.compile"),
        ("gpt2-large forward 4 x 1024 on t4", "share of its peak"),
    ],
)
def test_reasons(name: str, reason: str) -> None:
    assert reason in neusight_suite._reason(Case(name, "x", 1.0, {}))
