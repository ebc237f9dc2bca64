"""What makes a step fit: single remedies, and several together where none is enough alone."""

from pathlib import Path

from tests.support.scenarios import context_on, predicted, workload

from foretrain.prediction.advice.remedies import (
    MemoryRemedy,
    _memory_changes,
    _smallest_combinations,
    find_remedies,
)
from foretrain.prediction.kept import keep_result
from foretrain.prediction.options import Parallelism
from foretrain.prediction.predict import configure
from foretrain.prediction.scenario import Evaluation, evaluate


def remedies_for(batch: int, largest_batch: int = 0) -> tuple[MemoryRemedy, ...]:
    context = context_on(workload("gpt2-medium", batch=batch, seq_len=512), "gtx1060-6gb")
    return find_remedies(evaluate(context, configure(context, Parallelism())), largest_batch)


def test_checkpointing_comes_with_the_others_when_none_is_enough_alone() -> None:
    changes = remedies_for(8)
    alone = [remedy for remedy in changes if ", " not in remedy.change]
    together = [remedy for remedy in changes if remedy.change.startswith("checkpoint activations,")]
    assert not any(remedy.fits for remedy in alone)
    assert any(remedy.fits for remedy in together)
    best_alone = min(remedy.bytes for remedy in alone)
    assert min(remedy.bytes for remedy in together) < best_alone


def test_the_smallest_combinations_on_the_same_device_are_offered_too() -> None:
    """Two changes are enough here, so no three are offered; two of the optimizer exclude each other."""
    together = [each for each in remedies_for(8) if ", " in each.change and "ZeRO" not in each.change]
    fitting = [each.change.split(", ") for each in together if each.fits]
    assert ["optimizer adamw-8bit", "batch 1"] in fitting
    assert all(len(changes) == 2 for changes in fitting)
    assert not any({"optimizer adamw-8bit", "offload optimizer"} <= set(changes) for changes in fitting)


def test_combinations_of_replicas_keep_the_global_batch_and_the_devices() -> None:
    context = context_on(workload("gpt2-medium", batch=4, seq_len=512), "gtx1060-6gb:2")
    now = evaluate(context, configure(context, Parallelism()))
    changes = {change.text: change for change in _memory_changes(now)}
    assert {"micro_batches 4", "strategy zero3"} <= set(changes)
    found = _smallest_combinations(now, tuple(changes.values()))
    assert found and all(each.fits for each in found)
    assert len({len(each.change.split(", ")) for each in found}) == 1
    assert not any("batch 1" in each.change for each in found)


def test_one_device_becomes_several_only_where_nothing_else_is_enough() -> None:
    """Parameters of 1.5 billion weights alone exceed 5.9 GiB in FP32, checkpointed and with a batch of 1."""
    context = context_on(workload("gpt2-xl", batch=4, seq_len=256), "gtx1060-6gb")
    found = find_remedies(evaluate(context, configure(context, Parallelism())), 0)
    fitting = [each.change for each in found if each.fits]
    assert fitting and all("ZeRO-3 over" in change for change in fitting)


def test_remedies_are_computed_and_empty_when_the_step_fits() -> None:
    def evaluated(batch: int) -> Evaluation:
        context = context_on(workload("gpt2", batch=batch, seq_len=128), "gtx1060-6gb")
        return evaluate(context, configure(context, Parallelism()))

    assert find_remedies(evaluated(1), 1) == ()
    largest = predicted(workload("gpt2", batch=1, seq_len=128), "gtx1060-6gb").memory.largest_batch
    large = evaluated(2 * largest)
    changes = {remedy.change: remedy for remedy in find_remedies(large, largest)}
    assert changes[f"batch {largest}"].fits
    assert not changes["optimizer adamw-8bit"].fits  # activations are the trouble, not the optimizer
    assert not changes["ZeRO-3 over 64 devices"].fits
    assert changes["checkpoint activations"].bytes < large.memory.bytes


def test_every_zero_stage_names_the_fewest_devices_that_suffice_or_the_most_tried() -> None:
    changes = [remedy for remedy in remedies_for(8) if remedy.change.startswith("ZeRO-")]
    assert [remedy.change for remedy in changes] == [f"ZeRO-{stage} over 64 devices" for stage in (1, 2, 3)]
    sizes = [remedy.bytes for remedy in changes]
    assert sizes == sorted(sizes, reverse=True)


def test_remedies_are_kept_and_made_anew_where_they_cannot_be_read(own_home: Path) -> None:
    first = remedies_for(8)
    (file,) = (own_home / "remedies").iterdir()
    keep_result(file, [("less of everything", 1.0, True)])
    assert remedies_for(8) == (MemoryRemedy("less of everything", 1.0, True),)
    for content in (3, [3], [["less of everything"]]):
        keep_result(file, content)
        assert remedies_for(8) == first
    assert remedies_for(8, largest_batch=1) != first
    assert len([*(own_home / "remedies").iterdir()]) == 2
