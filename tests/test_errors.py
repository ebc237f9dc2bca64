"""The error tree: codes, statuses, and sentences that help."""

import pytest

from foretrain import errors
from foretrain.errors import ForetrainError, InvalidData, UnknownName, nearest


def leaves(kind: type[ForetrainError]) -> list[type[ForetrainError]]:
    below = kind.__subclasses__()
    return [leaf for child in below for leaf in [child, *leaves(child)]]


@pytest.mark.parametrize(
    ("name", "exit_code", "http_status"),
    [
        ("InvalidRequest", 2, 422),
        ("InvalidData", 2, 422),
        ("UnknownName", 2, 404),
        ("MissingData", 3, 409),
        ("BackendFailed", 4, 502),
    ],
)
def test_codes_are_those_of_the_contract(name: str, exit_code: int, http_status: int) -> None:
    kind = getattr(errors, name)
    assert (kind.exit_code, kind.http_status) == (exit_code, http_status)


def test_the_docstring_shows_the_whole_tree() -> None:
    for kind in leaves(ForetrainError):
        if kind.__module__ == "foretrain.errors":
            assert kind.__name__ in (errors.__doc__ or "")


def test_unknown_name_suggests_near_ones_and_says_where_to_look() -> None:
    error = UnknownName("device", "h100-sxn", ["h100-sxm", "h200-sxm", "k80"], "List them: foretrain devices")
    assert str(error) == (
        "no device 'h100-sxn'; did you mean h100-sxm or h200-sxm? List them: foretrain devices"
    )


def test_unknown_name_without_anything_near() -> None:
    assert str(UnknownName("device", "zzz", ["k80"], "List them: foretrain devices")) == (
        "no device 'zzz'. List them: foretrain devices"
    )


def test_names_that_contain_the_typed_text_come_first() -> None:
    assert nearest("v100", ["v100-pcie-32gb", "b200", "v100-sxm2-16gb"]) == (
        "v100-pcie-32gb",
        "v100-sxm2-16gb",
    )


def test_invalid_data_names_file_and_row() -> None:
    assert str(InvalidData("prices.csv", "price is negative: -1", row=7)) == (
        "prices.csv, row 7: price is negative: -1"
    )
