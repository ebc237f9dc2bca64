"""NeuSight's whole-model times: which model of the zoo each row is, and that every one exists."""

from __future__ import annotations

from pathlib import Path

import pytest

from calibration.datasets import neusight
from foretrain.workloads.zoo import zoo

ROWS = """model,mode,seq_len,batch,compiled,device,layers,e2e_ms,forward_ms,backward_ms
bert_large,inf,512,16,True,NVIDIA_A100-PCIE-40GB,24.0,345.5,345.5,0.0
bert_large,train,512,2,False,Tesla_V100-PCIE-32GB,24.0,234.0,83.0,151.0
switchxl4,inf,512,1,False,Tesla_V100-PCIE-32GB,,323.0,323.0,0.0
"""


@pytest.fixture
def found(tmp_path: Path) -> tuple[neusight.MeasuredPass, ...]:
    """Three rows as the data set has them."""
    file = tmp_path / neusight.STEP_FILE
    file.parent.mkdir(parents=True)
    file.write_text(ROWS, encoding="utf-8")
    return neusight.read_steps(tmp_path)


def test_bert_classifies_in_inference_and_predicts_tokens_in_training(
    found: tuple[neusight.MeasuredPass, ...],
) -> None:
    assert [each.model for each in found] == ["bert-large-classifier", "bert-large", "switch-xl-4"]
    assert [each.is_training for each in found] == [False, True, False]
    assert [each.is_compiled for each in found] == [True, False, False]


def test_times_are_seconds_and_devices_ids(found: tuple[neusight.MeasuredPass, ...]) -> None:
    training = found[1]
    assert training.device_id == "v100-pcie-32gb"
    assert training.seconds == pytest.approx(0.234)
    assert training.forward_seconds + training.backward_seconds == pytest.approx(training.seconds)


def test_every_model_is_in_the_zoo(found: tuple[neusight.MeasuredPass, ...]) -> None:
    for each in found:
        assert zoo()[each.model].sizes is not None
