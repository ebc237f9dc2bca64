"""Every architecture of the suite `hf_architectures`, with two layers in every stack."""

from __future__ import annotations

import pytest
from validation.hf_architectures_suite import TARGET, Architecture, architectures, trace_one

pytestmark = pytest.mark.filterwarnings("ignore")


def test_the_table_names_sixty_types_once_each() -> None:
    listed = architectures()
    assert len({each.model_type for each in listed}) == len(listed) == 60 > TARGET


@pytest.mark.parametrize("chosen", architectures(), ids=lambda each: each.model_type)
def test_it_traces(chosen: Architecture) -> None:
    outcome = trace_one(chosen, layers=2, precisions=("bf16",))
    assert outcome.unknown == ()
    assert outcome.operators > 100
    assert chosen.parameters is None or outcome.parameters <= chosen.parameters


@pytest.mark.parametrize("model_type", ["mixtral", "whisper", "wav2vec2", "llava"])
def test_it_traces_in_full_precision_too(model_type: str) -> None:
    (chosen,) = (each for each in architectures() if each.model_type == model_type)
    assert trace_one(chosen, layers=2, precisions=("fp32",)).unknown == ()


def test_layers_that_are_skipped_at_random_all_run() -> None:
    (chosen,) = (each for each in architectures() if each.model_type == "wav2vec2")
    first, second = (trace_one(chosen, layers=4, precisions=("bf16",)) for _ in range(2))
    assert first.operators == second.operators
    assert first.notes == ("all layers run: a layerdrop of 0.1, which skips layers at random, is left out",)
