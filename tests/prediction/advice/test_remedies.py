"""What makes a step fit: single remedies, and several together where none is enough alone."""

from tests.support.scenarios import context_on, predicted, workload

from foretrain.prediction.advice.remedies import MemoryRemedy, remedies
from foretrain.prediction.options import Parallelism
from foretrain.prediction.predict import configure
from foretrain.prediction.scenario import Evaluation, evaluate


def remedies_for(batch: int, largest_batch: int = 0) -> tuple[MemoryRemedy, ...]:
    context = context_on(workload("gpt2-medium", batch=batch, seq_len=512), "gtx1060-6gb")
    return remedies(evaluate(context, configure(context, Parallelism())), largest_batch)


def test_checkpointing_comes_with_the_others_when_none_is_enough_alone() -> None:
    changes = remedies_for(8)
    alone = [remedy for remedy in changes if not remedy.change.startswith("checkpoint activations,")]
    together = [remedy for remedy in changes if remedy.change.startswith("checkpoint activations,")]
    assert not any(remedy.fits for remedy in alone)
    assert any(remedy.fits for remedy in together)
    best_alone = min(remedy.bytes for remedy in alone)
    assert min(remedy.bytes for remedy in together) < best_alone


def test_remedies_are_computed_and_empty_when_the_step_fits() -> None:
    def evaluated(batch: int) -> Evaluation:
        context = context_on(workload("gpt2", batch=batch, seq_len=128), "gtx1060-6gb")
        return evaluate(context, configure(context, Parallelism()))

    assert remedies(evaluated(1), 1) == ()
    largest = predicted(workload("gpt2", batch=1, seq_len=128), "gtx1060-6gb").memory.largest_batch
    large = evaluated(2 * largest)
    changes = {remedy.change: remedy for remedy in remedies(large, largest)}
    assert changes[f"batch {largest}"].fits
    assert not changes["optimizer adamw-8bit"].fits  # activations are the trouble, not the optimizer
    assert not changes["ZeRO-3 over 64 devices"].fits
    assert changes["checkpoint activations"].bytes < large.memory.bytes


def test_every_zero_stage_names_the_fewest_devices_that_suffice_or_the_most_tried() -> None:
    changes = [remedy for remedy in remedies_for(8) if remedy.change.startswith("ZeRO-")]
    assert [remedy.change for remedy in changes] == [f"ZeRO-{stage} over 64 devices" for stage in (1, 2, 3)]
    sizes = [remedy.bytes for remedy in changes]
    assert sizes == sorted(sizes, reverse=True)
