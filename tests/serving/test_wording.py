"""Numbers and sentences by hand."""

from __future__ import annotations

import pytest

from foretrain.serving.views.wording import SPACE, amount, between, percent, probability, sentence


@pytest.mark.parametrize(
    ("share", "digits", "text"),
    [(0.172, 1, "17.2 %"), (1, 0, "100 %"), (0.0004, 1, "< 0.1 %"), (0, 1, "0.0 %"), (0.0006, 1, "0.1 %")],
)
def test_percent(share: float, digits: int, text: str) -> None:
    assert percent(share, digits) == text.replace(" ", SPACE)


@pytest.mark.parametrize(
    ("share", "text"),
    [(1.0, "over 99 %"), (0.995, "over 99 %"), (0.93, "93 %"), (0.01, "1 %"), (0.0, "under 1 %")],
)
def test_nothing_is_certain(share: float, text: str) -> None:
    assert probability(share).replace(SPACE, " ") == text


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (0.3891, "0.389"), (4.2, "4.20"), (24.51, "24.5"), (1234.5, "1,234")]
)
def test_three_digits(value: float, text: str) -> None:
    assert amount(value) == text


def test_words() -> None:
    assert between("1h 00m", "2h 00m").replace(SPACE, " ") == "80 % between 1h 00m and 2h 00m"
    assert sentence("it fits.") == "It fits."
    assert sentence("") == ""
