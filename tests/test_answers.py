"""What every answer offers, shown on the answer that nothing satisfies a request."""

import pytest

import foretrain
from foretrain.answers import Answer, Infeasible

ANSWER = Infeasible("memory", "31 GiB", "24 GiB", "batch 16 fits")


def test_infeasible_names_the_constraint_and_what_would_work() -> None:
    assert str(ANSWER) == "infeasible: memory needs 31 GiB, but there is 24 GiB; batch 16 fits"


def test_infeasible_is_an_answer_like_all_others() -> None:
    assert isinstance(ANSWER, Answer)
    assert ANSWER.to_dict() == {
        "infeasible": {
            "constraint": "memory",
            "needed": "31 GiB",
            "available": "24 GiB",
            "alternative": "batch 16 fits",
        }
    }
    assert all(value in ANSWER._repr_html_() for _, value in ANSWER.summary())
    assert ANSWER.summary()[-1] == ("alternative", "batch 16 fits")


@pytest.mark.parametrize("name", ["<b>", "a & b"])
def test_text_is_escaped_in_the_table(name: str) -> None:
    assert name not in Infeasible(name, "1", "0")._repr_html_()


def test_infeasible_is_public() -> None:
    assert foretrain.Infeasible is Infeasible
