"""The catalogue: what may be requested of an entry, and the errors for other requests."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrain.errors import InvalidRequest, UnknownName
from foretrain.workloads.zoo import BuildOptions, Extent, zoo


def test_listing_the_zoo_does_not_import_torch() -> None:
    code = "import sys; from foretrain.workloads.zoo import zoo; zoo(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_building_without_torch_says_how_to_install_it() -> None:
    hidden = "import sys; sys.modules['torch'] = None"
    code = f"{hidden}; from foretrain.workloads.zoo import build; build('resnet50')"
    run = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert "MissingData: resnet50 is a torch module" in run.stderr
    assert "foretrain[torch]" in run.stderr


def test_entries_are_found_by_alias_and_a_near_name_is_suggested() -> None:
    assert zoo()["Llama-3-8B"] is zoo()["llama3-8b"]
    with pytest.raises(UnknownName, match="did you mean resnet50"):
        zoo()["resnet5O"]


def test_every_entry_says_where_it_comes_from() -> None:
    assert len(zoo()) >= 50
    for entry in zoo().values():
        assert entry.reference, entry.name
        assert 0 <= entry.parameters_tolerance <= 0.05, entry.name


def test_defaults_fill_what_is_not_asked() -> None:
    entry = zoo()["gpt2"]
    sizes = entry.sizes(BuildOptions(seq_len=128))
    assert (sizes.batch, sizes.seq_len, sizes.image_size, sizes.attention) == (4, 128, 0, "sdpa")
    assert entry.defaults == BuildOptions(batch=4, seq_len=1024)
    assert entry.sizes(entry.defaults) == entry.sizes(BuildOptions())


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        ("resnet50", BuildOptions(seq_len=128), "resnet50 has no seq_len; leave out seq_len 128"),
        ("bert-base", BuildOptions(image_size=224), "bert-base has no image_size"),
        ("resnet50", BuildOptions(attention="eager"), "resnet50 has no attention of a kind to choose"),
        ("resnet50", BuildOptions(batch=0), "batch 0 does not fit: it must be at least 1"),
        ("resnet50", BuildOptions(batch=1, image_size=32), "does not fit with a batch of 1: .* at least 33"),
        ("gpt2", BuildOptions(seq_len=1025), "seq_len 1025 does not fit: .* at least 1 and at most 1024"),
        ("vit-b-16", BuildOptions(image_size=225), "at least 16 and a multiple of 16"),
        ("mnist-cnn", BuildOptions(image_size=32), "image_size 32 does not fit: it must be exactly 28"),
        ("alexnet", BuildOptions(image_size=62), "at least 63"),
        ("gpt2", BuildOptions(attention="magic"), "choose eager, sdpa, flash"),  # type: ignore[arg-type]
    ],
)
def test_what_a_model_cannot_take_is_refused_with_a_sentence(
    name: str, options: BuildOptions, sentence: str
) -> None:
    with pytest.raises(InvalidRequest, match=sentence):
        zoo()[name].sizes(options)


@given(value=st.integers(-5, 300), batch=st.integers(1, 3))
def test_an_extent_takes_exactly_the_values_it_declares(value: int, batch: int) -> None:
    extent = Extent(default=64, least=32, most=256, multiple_of=32, least_alone=64)
    allowed = {64, 96, 128, 160, 192, 224, 256} | ({32} if batch > 1 else set())
    if value in allowed:
        assert extent.check(value, batch, "size") == value
    else:
        with pytest.raises(InvalidRequest, match=f"size {value} does not fit"):
            extent.check(value, batch, "size")
