"""Values that a trace without data knows: those that follow from real ones alone."""

from __future__ import annotations

import pytest
import torch

from foretrain.workloads.tracing.values import MOST_ELEMENTS, KnownValues, with_value


@pytest.fixture
def ids() -> torch.Tensor:
    return with_value(torch.tensor([[5, 0, 7], [5, 5, 0]]), "meta")


def test_numbers_that_follow_from_ids_are_known(ids: torch.Tensor) -> None:
    with KnownValues():
        lengths = (ids != 0).sum(1)
        assert lengths.tolist() == [2, 2]
        assert lengths.max().item() == 2
        assert bool((ids == 0).any())
        assert 7 in ids
        assert 8 not in ids


def test_a_known_mask_selects_a_known_number_of_rows(ids: torch.Tensor) -> None:
    hidden = torch.empty((2, 3, 4), device="meta")
    with KnownValues():
        assert hidden[ids == 5].shape == (3, 4)
        assert hidden[:, ids[0] != 0].shape == (2, 2, 4)
        assert torch.nonzero(ids).shape == (4, 2)
        assert len(torch.where(ids == 0)[0]) == 2


def test_a_change_in_place_is_followed(ids: torch.Tensor) -> None:
    with KnownValues():
        ids[:, 0] = 9
        ids.masked_fill_(ids == 0, 1)
        assert ids.tolist() == [[9, 1, 7], [9, 5, 1]]


def test_what_an_unknown_value_overwrites_is_unknown(ids: torch.Tensor) -> None:
    unknown = torch.empty((3,), dtype=torch.int64, device="meta")
    with KnownValues():
        row = ids[0]
        row.copy_(unknown)
        for changed in (row, ids):
            with pytest.raises(RuntimeError):
                changed.tolist()


def test_activations_answer_three_questions_as_full_sequences_do() -> None:
    scores = torch.empty((2, 3), device="meta")
    with KnownValues():
        assert not bool(torch.isinf(scores).any())
        assert bool((scores > 0).all())
        with pytest.raises(RuntimeError):
            scores.sum().item()


def test_factories_are_known_unless_they_are_random_or_large() -> None:
    with KnownValues():
        assert torch.arange(4, device="meta").cumsum(0).tolist() == [0, 1, 3, 6]
        for unknown in (torch.randint(4, (2,), device="meta"), torch.zeros(MOST_ELEMENTS + 1, device="meta")):
            with pytest.raises(RuntimeError):
                unknown.sum().item()
