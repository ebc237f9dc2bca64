"""What all commands share: help, version, completion, and output that suits a person or a pipe."""

import os
import pty
import re
import select
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess

import click
import pytest
from click.testing import CliRunner

from foretrain import __version__
from foretrain.decoding import TEXT, option
from foretrain.errors import BackendFailed
from foretrain.serving.cli.frame import Command, CommandFamily, Output, click_command
from foretrain.serving.rendering.terminal import fitting, round_ticks
from foretrain.serving.requests import Request
from foretrain.serving.views.blocks import Column

Run = Callable[..., CompletedProcess[str]]
BOX = re.compile(r"[\u2500-\u259f]")
ANSI = re.compile(r"\x1b\[[0-9;]*m")
COLOUR = re.compile(r"\x1b\[[0-9;]*3[0-8][0-9;]*m")
COMMANDS = (
    "predict",
    "trace",
    "scaling",
    "converge",
    "measure",
    "campaign",
    "calibrate",
    "devices",
    "models",
    "links",
    "offers",
    "plan",
    "guide",
    "rent-or-buy",
    "explain",
    "runs",
    "validate",
)
EXAMPLES = (
    ("devices", "a100"),
    ("devices", "t4"),
    ("offers", "--gpu", "a100", "--limit", "3"),
    ("explain", "t4"),
    ("models", "--search", "bert"),
    ("links", "--kind", "pcie"),
    ("rent-or-buy", "--price", "8000", "--rent", "1.5"),
)


def on_a_terminal(*arguments: str, columns: int = 100, **environment: str) -> str:
    """What the real command prints on a terminal with `columns` columns."""
    ours, its = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "foretrain", *arguments],
        stdin=its, stdout=its, stderr=its,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": str(columns), "LINES": "40", **environment},
    )  # fmt: skip
    os.close(its)
    printed = b""
    while select.select([ours], [], [], 60)[0]:
        try:
            some = os.read(ours, 65536)
        except OSError:  # Linux says so when the last writer has left
            break
        if not some:
            break
        printed += some
    os.close(ours)
    process.wait(60)
    return printed.decode().replace("\r\n", "\n")


@pytest.mark.parametrize("arguments", [(), ("--help",), ("-h",)])
def test_help_lists_the_commands(run_here: Run, arguments: tuple[str, ...]) -> None:
    run = run_here(*arguments)
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.startswith("Usage: foretrain ")
    for command in COMMANDS:
        assert re.search(rf"^  {command} +\S", run.stdout, flags=re.MULTILINE)


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_explains_itself_with_examples(run_here: Run, command: str) -> None:
    text = run_here(command, "--help").stdout
    assert text.startswith(f"Usage: foretrain {command} ")
    assert re.search(rf"^    foretrain {command}( |$)", text, flags=re.MULTILINE), (
        "an example on its own line"
    )
    assert "--json" in text


def test_version(run_command: Run) -> None:
    run = run_command("--version")
    assert (run.returncode, run.stdout, run.stderr) == (0, f"foretrain {__version__}\n", "")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("device",), r"No such command 'device'. Did you mean 'devices'\? \(see foretrain --help\)"),
        (("devices", "a", "b"), r".*extra argument.* \(see foretrain devices --help\)"),
        (("explain",), r"Missing argument 'name' \(see foretrain explain --help\)"),
    ],
)
def test_commands_mistyped_get_one_sentence(
    run_command: Run, arguments: tuple[str, ...], sentence: str
) -> None:
    run = run_command(*arguments)
    assert (run.returncode, run.stdout) == (2, "")
    assert re.fullmatch(f"error: {sentence}\n", run.stderr, flags=re.IGNORECASE)


def completions(*words: str) -> list[str]:
    run = subprocess.run(
        [sys.executable, "-m", "foretrain"],
        env={
            **os.environ,
            "_FORETRAIN_COMPLETE": "bash_complete",
            "COMP_WORDS": " ".join(words),
            "COMP_CWORD": str(len(words) - 1),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    return [line.partition(",")[2] for line in run.stdout.splitlines()]


def test_completion_knows_commands_devices_and_clouds() -> None:
    assert completions("foretrain", "of") == ["offers"]
    assert completions("foretrain", "devices", "h100") == ["h100-nvl", "h100-pcie", "h100-sxm"]
    assert completions("foretrain", "offers", "--gpu", "a100-sxm") == ["a100-sxm-40gb", "a100-sxm-80gb"]
    assert completions("foretrain", "offers", "--cloud", "aw") == ["aws"]


def test_completion_knows_instances_links_and_networks() -> None:
    assert completions("foretrain", "predict", "x", "--on", "aws:p4de") == ["aws:p4de.24xlarge"]
    split = completions("foretrain", "predict", "x", "--on", "aws", ":", "p4de")
    assert split == ["p4de.24xlarge"], "bash splits words at colons and replaces the last part"
    assert completions("foretrain", "predict", "x", "--on", "lamb") == ["lambda:"]
    assert completions("foretrain", "predict", "x", "--links", "nvlink3") == ["nvlink3"]
    assert completions("foretrain", "plan", "x", "--network", "infiniband-n") == ["infiniband-ndr"]
    assert not any(completions("foretrain", "plan", "x", "--network", "nvl"))
    assert completions("foretrain", "plan", "x", "--region", "us-central") == ["us-central1"]
    assert completions("foretrain", "plan", "x", "--gpu", "t4,rtx409") == ["t4,rtx4090"]
    assert completions("foretrain", "predict", "x", "--precision", "fp") == ["fp32", "fp16", "fp8"]
    assert completions("foretrain", "predict", "x", "--optimizer", "adad") == ["adadelta"]


def test_the_completion_script_is_for_this_command(run_command: Run) -> None:
    script = run_command("--show-completion", "bash").stdout
    assert "_FORETRAIN_COMPLETE=bash_complete" in script


@pytest.mark.parametrize("arguments", EXAMPLES)
def test_a_pipe_gets_plain_text(run_command: Run, arguments: tuple[str, ...]) -> None:
    run = run_command(*arguments, FORCE_COLOR="1")
    assert (run.returncode, run.stderr) == (0, "")
    assert not BOX.search(run.stdout) and "\x1b" not in run.stdout
    assert all(line == line.rstrip() for line in run.stdout.splitlines())


@pytest.mark.parametrize("columns", [80, 100])
@pytest.mark.parametrize("arguments", EXAMPLES)
def test_a_terminal_gets_tables_that_fit(arguments: tuple[str, ...], columns: int) -> None:
    text = on_a_terminal(*arguments, columns=columns)
    assert BOX.search(text) and ANSI.search(text)
    assert "Traceback" not in text
    lines = [ANSI.sub("", line) for line in text.splitlines()]
    assert all(len(line) <= columns for line in lines if "://" not in line)


def test_a_narrow_terminal_says_which_columns_it_left_out() -> None:
    arguments = ("offers", "--gpu", "a100", "--limit", "3")
    narrow = on_a_terminal(*arguments, columns=80)
    assert "Columns hidden (terminal too narrow): vCPU, memory, spot $/h, region" in narrow
    assert "as of" in narrow, "no price without its date"
    assert "Not shown" not in on_a_terminal(*arguments, columns=200)


def test_no_color_means_no_colour() -> None:
    arguments = ("rent-or-buy", "--price", "8000", "--rent", "1.5")
    assert COLOUR.search(on_a_terminal(*arguments))
    assert not COLOUR.search(on_a_terminal(*arguments, NO_COLOR="1"))


def test_errors_are_red_on_a_terminal_unless_no_color_is_set() -> None:
    assert on_a_terminal("devices", "h100-sxn").startswith("\x1b[1;31merror:\x1b[0m no device 'h100-sxn'")
    assert on_a_terminal("devices", "h100-sxn", NO_COLOR="1").startswith("error: no device 'h100-sxn'")


@pytest.mark.parametrize("arguments", ["devices", "devices --json", "offers --all-regions", "--help"])
def test_a_reader_that_leaves_early_is_no_error(arguments: str) -> None:
    command = f'"{sys.executable}" -m foretrain {arguments} | head -1; echo "exit ${{PIPESTATUS[0]}}"'
    run = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert run.stderr == ""
    assert run.stdout.splitlines()[-1] == "exit 0"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("arguments", ["devices", "devices --json", "--version", "--help"])
def test_a_full_disk_is_a_sentence_too(arguments: str) -> None:
    """Long output fails while it is written, short output when it is flushed."""
    command = [sys.executable, "-m", "foretrain", *arguments.split()]
    with Path("/dev/full").open("w") as full:
        run = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert run.returncode == BackendFailed.exit_code
    assert run.stderr == "error: I/O error: No space left on device; free some, or write elsewhere\n"


def test_the_most_expendable_columns_leave_first() -> None:
    columns = [
        Column("name"),
        Column("note", expendable=2),
        Column("year", expendable=1),
        Column("text", least=5),
    ]
    rows = [("h100", "a long note", "2022", "some more text")]
    # each column takes its widest cell (text: 5) and two spaces: 6 + 13 + 6 + 7 = 32
    assert fitting(columns, rows, 32) == [0, 1, 2, 3]
    assert fitting(columns, rows, 31) == [0, 2, 3]
    assert fitting(columns, rows, 18) == [0, 3]
    assert fitting(columns, rows, 3) == [0, 3]


@pytest.mark.parametrize(
    ("top", "ticks"),
    [
        (10, [0, 2, 4, 6, 8, 10]),
        (10666.7, [0, 2500, 5000, 7500, 10000]),
        (16000, [0, 5000, 10000, 15000]),
        (0.3, [0, 0.1, 0.2, 0.3]),
        (0, [0]),
    ],
)
def test_axes_are_marked_with_round_numbers(top: float, ticks: list[float]) -> None:
    assert round_ticks(top) == pytest.approx(ticks)


@dataclass(frozen=True, kw_only=True)
class _Named(Request):
    """A request with one argument."""

    name: str | None = option(TEXT, "A name.", positional=True, metavar="NAME")


def _family(calls: list[tuple[str, str | None]]) -> CommandFamily:
    def declared(word: str) -> Command:
        return Command(_Named, Output, lambda request, _: calls.append((word, request.name)))

    return CommandFamily({"show": ("Show one.", declared("show"))}, default=declared("default"))


@pytest.mark.parametrize(
    ("words", "call"),
    [(["show", "a"], ("show", "a")), (["a"], ("default", "a")), (["--json", "a"], ("default", "a"))],
)
def test_the_next_word_selects_a_command_of_a_family(words: list[str], call: tuple[str, str | None]) -> None:
    calls: list[tuple[str, str | None]] = []
    group = click.Group(commands={"probe": click_command(_family(calls), "probe", "Probe.")})
    group.main(["probe", *words], standalone_mode=False)
    assert calls == [call]


def test_the_help_of_a_family_lists_its_commands_and_the_default_options() -> None:
    text = CliRunner().invoke(click_command(_family([]), "probe", "Probe."), ["--help"]).output
    assert "Show one." in text
    assert "NAME" in text


@pytest.mark.parametrize(("line", "exit_code"), [("devices >&-", 0), ("devices nope 2>&-", 2)])
def test_a_closed_stream_changes_nothing_but_the_output(line: str, exit_code: int) -> None:
    shell = ["sh", "-c", f"{sys.executable} -m foretrain {line}"]
    run = subprocess.run(shell, capture_output=True, text=True, check=False)
    assert run.returncode == exit_code
    assert "Traceback" not in run.stdout + run.stderr


def test_errors_name_output_options_as_typed(run_here: Run) -> None:
    words = ("plan", "mnist-cnn", "--samples", "1000", "--epochs", "1", "--emit", "torchrun", "--script", "'")
    run = run_here(*words)
    assert run.returncode == 2
    assert "--script" in run.stderr
