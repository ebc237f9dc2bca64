"""The recordings that ship with the package are those of the present code, and equal fresh traces."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import pytest

from foretrain.errors import InvalidRequest
from foretrain.workloads.options import ResolvedOptions
from foretrain.workloads.readers import read_model
from foretrain.workloads.recorded import library
from foretrain.workloads.recorded.library import StepVariant, list_variants, lora_of, options_of
from foretrain.workloads.recorded.recording import find_difference
from foretrain.workloads.workload import Workload, trace_workload
from foretrain.workloads.zoo import AttentionKind, BuildOptions, zoo
from foretrain.workloads.zoo.catalogue import list_models, shape_of

MOST_BYTES = 5_000_000
RANK = 16
NOT_RECORDED = {
    "qwen3-30b-a3b": "128 experts in every block: recording was stopped unfinished",
    "switch-xl-4": "not recorded yet: as switch-base-8, it would be stored with all layers",
}
"""Models of the zoo that are always traced, and why."""
SAMPLE = (
    ("resnet50", StepVariant("autocast")),
    ("resnet50", StepVariant("fp32", channels_last=True, single=True)),
    ("llama3-8b", StepVariant("bf16-half-outputs", checkpoint="blocks")),
    ("llama3.2-1b", StepVariant("bf16-autocast", lora="lora,quantised")),
    ("bert-base", StepVariant("fp32", eager=True)),
    ("gpt2", StepVariant("bf16-fp32-gradients", checkpoint="selective-whole", single=True)),
    ("gpt2", StepVariant("autocast", forward_only=True)),
)


def _workload(model: str, variant: StepVariant, optimizer: str | None = "adamw") -> Workload:
    options = options_of(variant)
    if not variant.forward_only:
        options = replace(options, optimizer=optimizer)
    batch = 1 if variant.single else 6
    sizes = BuildOptions(batch=batch, attention=cast("AttentionKind", options.attention))
    return Workload(read_model(model), sizes, options, lora_of(variant, RANK))


def _recorded(workload: Workload) -> library.RecordedModel | None:
    shape = workload.source.shape(workload.sizes)
    assert shape is not None
    return library.find_recording(shape, workload.options, workload.lora)


def _check(model: str, variant: StepVariant) -> None:
    workload = _workload(model, variant)
    try:
        recorded = _recorded(workload)
    except InvalidRequest as refused:
        with pytest.raises(InvalidRequest) as error:
            trace_workload(workload)
        assert str(error.value) == str(refused)
        return
    if recorded is not None:
        assert find_difference(recorded.graph(), trace_workload(workload)) is None


def _variants(model: str) -> list[StepVariant]:
    entry = zoo()[model]
    return list(list_variants(entry.attention, entry.attention, entry.image_size is not None))


@pytest.mark.parametrize(("model", "variant"), SAMPLE, ids=lambda value: getattr(value, "key", value))
def test_a_recording_equals_a_fresh_trace(model: str, variant: StepVariant) -> None:
    assert _recorded(_workload(model, variant)) is not None
    _check(model, variant)


@pytest.mark.parametrize("model", [entry.name for entry in list_models() if entry.name not in NOT_RECORDED])
def test_the_usual_steps_of_a_model_are_recorded_by_the_present_code(model: str) -> None:
    """If this fails, a recording is missing or stale: run `make graphs`."""
    for precision in ("fp32", "bf16"):
        for batch in (1, 2, 24):
            source = read_model(model)
            workload = Workload(source, BuildOptions(batch=batch), ResolvedOptions(precision=precision))
            try:
                assert _recorded(workload) is not None
            except InvalidRequest:  # a size that the model does not take
                with pytest.raises(InvalidRequest):
                    trace_workload(workload)


def test_the_recordings_are_few_megabytes() -> None:
    assert sum(file.stat().st_size for file in library.folder().iterdir()) < MOST_BYTES


def test_models_of_one_architecture_share_a_recording() -> None:
    shapes = {name: shape_of(zoo()[name], zoo()[name].sizes(BuildOptions())) for name in ("gpt2", "gpt3-13b")}
    assert len({shape.architecture for shape in shapes.values()}) == 1
    assert shapes["gpt3-13b"].sizes["layers"] == 40
    assert shapes["gpt3-13b"].sizes["head_width"] == 5120 // 40


def test_what_is_not_recorded_is_traced() -> None:
    adafactor = _workload("gpt2", StepVariant("autocast"), optimizer="adafactor")
    released = replace(adafactor, options=ResolvedOptions(gradient_release=True))
    other_image = replace(
        _workload("resnet50", StepVariant("fp32")), sizes=BuildOptions(batch=2, image_size=225)
    )
    assert [_recorded(each) for each in (adafactor, released, other_image)] == [None, None, None]
