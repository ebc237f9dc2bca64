"""DAWNBench's runs are predicted phase by phase, as their entries describe the training."""

from dataclasses import replace

import pytest
from validation.dawnbench_entries import Phase, known_entries, log_of, reason_left_out, resnet164_entries
from validation.dawnbench_runs_suite import AGED, HERE, _assumptions, _in_usd, _left_out, _with_age
from validation.report import Case

from foretrain.estimates import Quantiles


def test_epochs_that_count_from_zero_are_one_more() -> None:
    assert log_of([(0.0, 0.1), (1.0, 0.2)]).epochs == 2
    assert log_of([(1.0, 0.1), (2.0, 0.2)]).epochs == 2
    assert log_of([(0.0, 0.0), (1.0, 0.1)]).epochs == 1  # before the first epoch
    assert log_of([(0.0, 0.1), (2.9, 0.2)]).epochs == 2.9  # logged by steps


def test_swapped_columns_are_put_right() -> None:
    log = log_of([(0.7, 1.0), (1.4, 2.0), (2.1, 3.0)], "24.48")
    assert (log.epochs, log.hours, log.usd_per_hour) == (3.0, 2.1, 24.48)
    log = log_of([(1.0, 1.0), (2.0, 2.0)])
    assert (log.epochs, log.hours) == (2.0, 2.0)


def test_the_last_phase_goes_on_as_long_as_the_log() -> None:
    entry = replace(known_entries()[0], phases=(Phase(2, 128, 8), Phase(3, 224, 8)))
    assert [phase.epochs for phase in entry.over(7)] == [2, 5]
    assert [phase.epochs for phase in entry.over(4)] == [2, 2]
    assert [phase.epochs for phase in entry.over(1)] == [1]


def test_every_batch_shares_out_over_the_devices() -> None:
    for entry in known_entries():
        for phase in entry.phases:
            assert phase.batch % (entry.hardware.devices * entry.micro_batches) == 0, entry.name


def test_dawns_own_entries_hold_model_and_device_in_their_name() -> None:
    names = ("dawn_resnet164_nb_1k80-gc_tensorflow", "dawn_resnet164_b_16vCPUs-gc_pytorch", "basenet")
    rows = [{"task": "CIFAR10", "entry": name} for name in names]
    (entry,) = resnet164_entries(rows)
    assert entry.model_name == "preact_basic_164"
    assert entry.hardware.device.id == "k80"


def test_why_an_entry_is_left_out() -> None:
    row = {"task": "ImageNet", "entry": "e", "model": "ResNet50", "hardware": "Half of a TPUv2 Pod"}
    assert reason_left_out(row) == "no such device known: TPU"
    assert reason_left_out(row | {"hardware": "60 GB / 16 CPU"}) == "trained on CPUs"
    assert "not stated" in reason_left_out(row | {"hardware": "Tesla V100 * 8 GPU / 40 CPU"})
    assert reason_left_out(row | {"task": "SQuAD"}) == "no such model known"
    assert _left_out([row], set()) == "Left out: no such device known: TPU: 1, e (ResNet50)."
    assert "e (" not in _left_out([row], {("ImageNet", "e")})


def test_an_entry_is_slowed_down_by_other_submitters_alone() -> None:
    cases = [
        Case("a1", "a", 10.0, {HERE: 1.0}),
        Case("b1", "b", 2.0, {HERE: 1.0}),
        Case("c1", "c", 4.0, {HERE: 2.0}),
    ]
    aged = {case.name: case.predicted[AGED] for case in _with_age(cases)}
    assert aged == pytest.approx({"a1": 2.0, "b1": 6.0, "c1": 12.0})
    assert next(iter(_with_age(cases)[0].predicted)) == HERE


def test_the_cost_is_the_time_at_the_entrys_price() -> None:
    case = _in_usd(Case("a", "a", 2.0, {HERE: 3.0}, Quantiles(2.0, 3.0, 4.0)), 10.0)
    assert (case.measured, case.predicted[HERE]) == (20.0, 30.0)
    assert case.interval == Quantiles(20.0, 30.0, 40.0)


def test_assumptions_name_the_entries_they_concern() -> None:
    entries = [replace(known_entries()[0], name=name, assumed="FP32") for name in ("x", "y")]
    assert list(_assumptions(entries)) == ["Assumed of x, y: FP32."]


def test_resnet164_has_the_parameters_of_the_paper() -> None:
    import torch
    from validation.dawnbench_models import preact_basic_164, preact_bottleneck_164

    with torch.device("meta"):
        for build, parameters in ((preact_bottleneck_164, 1.7e6), (preact_basic_164, 2.6e6)):
            module, images, _ = build(2, 32)
            assert sum(each.numel() for each in module.parameters()) == pytest.approx(parameters, rel=0.02)
            assert module(images).shape == (2, 10)
            sizes = {each.shape[-1] for each in module.state_dict().values() if each.dim() == 4}
            assert sizes == {1, 3}
