"""Models from the user's own file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from foretrain.errors import InvalidData, InvalidRequest, UnknownName
from foretrain.workloads.options import ResolvedOptions
from foretrain.workloads.readers import ModelSource, read_model
from foretrain.workloads.tracing.step import trace
from foretrain.workloads.zoo import BuildOptions

HEAD = "import torch\nfrom torch import nn\n\n"
NET = HEAD + (
    "def build():\n"
    "    targets = torch.zeros(4, dtype=torch.int64)\n"
    "    return nn.Linear(8, 3), torch.rand(4, 8), lambda out: nn.functional.cross_entropy(out, targets)\n"
)


def source_of(folder: Path, text: str, callable_name: str = "build", file: str = "net.py") -> ModelSource:
    (folder / file).write_text(text)
    return read_model(f"{folder / file}:{callable_name}")


def test_module_inputs_and_loss(tmp_path: Path) -> None:
    source = source_of(tmp_path, NET)
    assert (source.kind, source.runs_user_code) == ("python file", True)
    graph = trace(source.example(BuildOptions()), ResolvedOptions())
    assert graph.parameters == 8 * 3 + 3
    assert graph.samples == 4


def test_module_and_inputs_by_name_with_a_module_that_returns_its_loss(tmp_path: Path) -> None:
    text = HEAD + (
        "class Net(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.table = nn.Embedding(10, 4)\n"
        "    def forward(self, *, ids, scale):\n"
        "        return (self.table(ids) * scale).sum()\n"
        "def build(batch=2, seq_len=5):\n"
        "    return Net(), {'ids': torch.zeros(batch, seq_len, dtype=torch.int64), 'scale': torch.ones(())}\n"
    )
    example = source_of(tmp_path, text).example(BuildOptions(batch=3, seq_len=7))
    assert (example.samples, example.tokens) == (3, 21)
    assert trace(example, ResolvedOptions()).parameters == 40


def test_a_callable_without_batch_has_its_inputs_resized(tmp_path: Path) -> None:
    text = HEAD + "def build():\n    return nn.Linear(8, 3), (torch.rand(4, 8),), lambda out: out.mean()\n"
    example = source_of(tmp_path, text).example(BuildOptions(batch=6))
    assert trace(example, ResolvedOptions()).samples == 6
    assert example.inputs[0].shape == (6, 8)


def test_a_loss_whose_targets_keep_their_batch_fails_with_its_own_error(tmp_path: Path) -> None:
    example = source_of(tmp_path, NET).example(BuildOptions(batch=6))
    with pytest.raises(InvalidRequest, match=r"the model failed .*batch_size"):
        trace(example, ResolvedOptions())


def test_a_constructor_that_looks_at_values_is_built_for_real(tmp_path: Path) -> None:
    text = HEAD + (
        "def build():\n"
        "    rates = [rate.item() for rate in torch.linspace(0, 1, 3)]\n"
        "    assert rates == [0.0, 0.5, 1.0]\n"
        "    return nn.Linear(8, 3), torch.rand(4, 8), lambda out: (out - torch.tensor(rates)).sum()\n"
    )
    assert trace(source_of(tmp_path, text).example(BuildOptions()), ResolvedOptions()).parameters == 27


def test_what_the_file_prints_stays_out_of_standard_output(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source_of(tmp_path, "print('hello')\n" + NET).example(BuildOptions())
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "hello" in printed.err


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ("nn.Linear(2, 2)", "without example inputs"),
        ("5", "returns a int"),
        ("(torch.rand(2), torch.rand(2))", "where the module should be"),
        ("(nn.Linear(2, 2), torch.rand(1, 2), 3)", "where the loss should be"),
        ("(nn.Linear(2, 2), 'x')", "where the inputs should be"),
        ("(nn.Linear(2, 2), ())", "no input tensor"),
    ],
)
def test_the_error_of_a_wrong_return_value_names_the_right_one(
    tmp_path: Path, returned: str, message: str
) -> None:
    with pytest.raises(InvalidRequest, match=message):
        source_of(tmp_path, HEAD + f"def build():\n    return {returned}\n").example(BuildOptions())


def test_an_error_inside_the_file_is_shown_as_its_own(tmp_path: Path) -> None:
    source = source_of(tmp_path, "def build():\n    raise ValueError('no such depth: 7')\n")
    with pytest.raises(InvalidRequest, match="ValueError: no such depth: 7"):
        source.example(BuildOptions())


def test_a_file_that_exits_does_not_take_us_along(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"ended itself .sys.exit: 3."):
        source_of(tmp_path, "import sys\nsys.exit(3)\n").example(BuildOptions())


def test_the_error_of_a_missing_callable_names_near_ones(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="did you mean build"):
        source_of(tmp_path, NET, "biuld").example(BuildOptions())


def test_a_name_that_is_no_callable(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="size is a int, not a callable"):
        source_of(tmp_path, "size = 3\n", "size").example(BuildOptions())


def test_a_file_without_a_callable_named(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(NET)
    with pytest.raises(InvalidRequest, match="names no callable"):
        read_model(str(tmp_path / "net.py"))


def test_a_size_the_callable_does_not_take(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="takes no image_size"):
        source_of(tmp_path, NET).example(BuildOptions(image_size=64))


def test_a_file_that_is_not_python(tmp_path: Path) -> None:
    with pytest.raises(InvalidData, match="is not Python"):
        source_of(tmp_path, "def build(:\n")


def test_the_fingerprint_follows_the_file_and_what_it_imports_from_beside_it(tmp_path: Path) -> None:
    (tmp_path / "layers.py").write_text("WIDTH = 8\n")
    source = source_of(tmp_path, "from layers import WIDTH\n" + NET)
    first = source.fingerprint()
    assert source.fingerprint() == first
    (tmp_path / "layers.py").write_text("WIDTH = 16\n")
    second = source.fingerprint()
    (tmp_path / "other.py").write_text("unrelated = True\n")
    assert len({first, second}) == 2
    assert source.fingerprint() == second


def test_two_folders_with_modules_of_one_name_do_not_mix(tmp_path: Path) -> None:
    for width in (2, 3):
        folder = tmp_path / str(width)
        folder.mkdir()
        (folder / "layers.py").write_text(f"WIDTH = {width}\n")
        text = (
            "from layers import WIDTH\n"
            + HEAD
            + ("def build():\n    return nn.Linear(WIDTH, 1, bias=False), torch.rand(4, WIDTH), torch.sum\n")
        )
        module = source_of(folder, text).example(BuildOptions()).module
        assert sum(parameter.numel() for parameter in module.parameters()) == width
    assert "layers" not in sys.modules
    assert not any(str(tmp_path) in entry for entry in sys.path)


def test_the_error_of_a_failing_forward_names_the_layer(tmp_path: Path) -> None:
    text = HEAD + (
        "def build():\n"
        "    return nn.Sequential(nn.Linear(8, 3), nn.Linear(4, 1)), torch.rand(2, 8), torch.sum\n"
    )
    example = source_of(tmp_path, text).example(BuildOptions())
    with pytest.raises(InvalidRequest, match="in layer '1'"):
        trace(example, ResolvedOptions())


def test_control_flow_that_depends_on_the_data_is_named_as_such(tmp_path: Path) -> None:
    text = HEAD + (
        "class Net(nn.Linear):\n"
        "    def forward(self, x):\n"
        "        return super().forward(x) if x.sum() > 0 else x\n"
        "def build():\n    return Net(8, 3), torch.rand(2, 8), torch.sum\n"
    )
    with pytest.raises(InvalidRequest, match="control flow depends on the data"):
        trace(source_of(tmp_path, text).example(BuildOptions()), ResolvedOptions())


def test_arguments_that_the_file_parses_are_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = HEAD + (
        "import argparse\n"
        "parser = argparse.ArgumentParser()\n"
        "parser.add_argument('--width', type=int, default=8)\n"
        "arguments = parser.parse_args()\n"
        "def build():\n"
        "    assert parser.parse_args() == arguments\n"
        "    return nn.Linear(arguments.width, 3), torch.rand(4, arguments.width), lambda out: out.mean()\n"
    )
    ours = ["foretrain", "predict", "net.py:build", "--on", "t4", "--width", "16"]
    monkeypatch.setattr(sys, "argv", ours)
    example = source_of(tmp_path, text).example(BuildOptions())
    assert example.inputs[0].shape == (4, 8)
    assert sys.argv is ours
    failing = source_of(tmp_path, text.replace("default=8", "required=True"), file="other.py")
    with pytest.raises(InvalidRequest, match=r"ended itself .sys.exit: 2.: .* give its arguments defaults"):
        failing.example(BuildOptions())
    assert sys.argv is ours


@pytest.mark.parametrize(
    "imported",
    [
        "import torchvision",
        "import timm",
        "from transformers import ViTImageProcessor",
        "import torchmetrics",
    ],
)
def test_a_file_may_import_torchvision_itself_or_by_way_of_another_library(
    tmp_path: Path, imported: str
) -> None:
    """In a process of its own: torchvision is imported once."""
    (tmp_path / "net.py").write_text(f"{imported}\n{NET}")
    code = (
        "from foretrain.workloads.readers import read_model\n"
        "from foretrain.workloads.zoo import BuildOptions\n"
        "print(read_model('net.py:build').example(BuildOptions(batch=4)).samples)"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert run.stdout == "4\n", run.stderr
