"""`make graphs` keeps a recording of other code only if a fresh trace gives the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from scripts import record_graphs

from foretrain.workloads.recorded import library
from foretrain.workloads.recorded.library import StepVariant
from foretrain.workloads.recorded.template import Template

VARIANTS = {"vgg11": StepVariant("autocast"), "gpt-628764": StepVariant("fp32", checkpoint="blocks")}


def _stored(name: str) -> tuple[record_graphs.Recorded, Template]:
    recorded = next(each for each in record_graphs.list_architectures() if each.name == name)
    template = library.read_all(name)[VARIANTS[name].key]
    assert isinstance(template, Template)
    return recorded, template


@pytest.mark.parametrize("name", VARIANTS)
def test_an_equal_recording_is_still_right(name: str) -> None:
    recorded, template = _stored(name)
    assert record_graphs.is_still_right(recorded, VARIANTS[name], template)


def _other_operator(tables: Any) -> dict[str, Any]:
    first, *others = tables["signatures"]
    return {"signatures": [("aten.another", *first[1:]), *others]}


def _other_type(tables: Any) -> dict[str, Any]:
    (shape, _), *others = tables["specs"]
    return {"specs": [(shape, "float64"), *others]}


@pytest.mark.parametrize("change", [_other_operator, _other_type])
@pytest.mark.parametrize("name", VARIANTS)
def test_a_recording_that_differs_is_not_kept(name: str, change: Any) -> None:
    recorded, template = _stored(name)
    changed = Template({**template.tables, **change(template.tables)})
    assert not record_graphs.is_still_right(recorded, VARIANTS[name], changed)


def test_a_refusal_that_no_longer_holds_is_not_kept() -> None:
    recorded, _ = _stored("vgg11")
    assert not record_graphs.is_still_right(recorded, VARIANTS["vgg11"], "vgg11 takes no such image")


def test_a_name_may_be_that_of_a_model_and_a_wrong_one_is_a_sentence(
    capsys: pytest.CaptureFixture[str],
) -> None:
    record_graphs.main(["--list", "llama3-8b", "vgg11"])
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["llama-3f9a6d", "vgg11"]
    with pytest.raises(SystemExit):
        record_graphs.main(["--list", "lama3-8b"])
    assert "no architecture 'lama3-8b'; did you mean llama3-8b" in capsys.readouterr().err


def test_the_documentation_lists_what_ships() -> None:
    """If this fails, put the output of `record_graphs.py --table` into the page."""
    page = (Path(__file__).parents[1] / "docs" / "workloads.md").read_text(encoding="utf-8")
    assert "\n".join(record_graphs.list_shipped()) in page


@pytest.mark.parametrize("name", [each.name for each in record_graphs.list_architectures()])
def test_every_recording_equals_a_small_fresh_trace(name: str) -> None:
    recorded = next(each for each in record_graphs.list_architectures() if each.name == name)
    stored = library.read_all(name)
    variants = [each for each in record_graphs.variants_of(recorded) if each.key in stored]
    assert all(record_graphs.is_still_right(recorded, each, stored[each.key]) for each in variants)
