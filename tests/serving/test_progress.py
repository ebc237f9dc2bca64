"""While an answer takes long, its phases are shown on standard error; Ctrl-C ends it at once."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from foretrain.progress import listen, no_progress, phase

SENTENCE = "interrupted before the answer was complete"
PREDICT = ("predict", "mnist-cnn", "--on", "t4", "--batch", "64", "--precision", "fp16")
SEARCH = ("predict", "mnist-cnn", "--on", "t4:8", "--strategy", "auto", "--global-batch", "64")
TRACE = ("predict", "own.py:model", "--on", "t4")
OWN = """
import torch

def model():
    return torch.nn.Linear(8, 8), torch.randn(4, 8), lambda output: output.sum()
"""
Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """Start a command in an empty data directory, with progress from the first moment on."""

    (tmp_path / "own.py").write_text(OWN, encoding="utf-8")

    def popen(
        *command: str, stderr: int = subprocess.PIPE, options: tuple[str, ...] = ()
    ) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, *options, "-m", "foretrain", *command],
            env=os.environ | {"FORETRAIN_HOME": str(tmp_path), "FORETRAIN_PROGRESS": "0"},
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )

    return popen


def interrupt_at(process: subprocess.Popen[str], text: str) -> list[str]:
    """Interrupt a process when its standard error has a line with a text; returns the lines that follow."""
    assert process.stderr is not None
    for line in process.stderr:
        if text in line:
            process.send_signal(signal.SIGINT)
            return process.stderr.read().splitlines()
    raise AssertionError(f"no line has {text!r}")


@pytest.mark.parametrize(
    ("command", "text"),
    [(TRACE, "recording own.py:model"), (SEARCH, "searching layouts of 8 devices")],
    ids=["tracing", "searching"],
)
def test_an_interrupted_command_says_so_in_a_sentence(
    start: Start, command: tuple[str, ...], text: str
) -> None:
    with start(*command) as process:
        lines = interrupt_at(process, text)
        assert lines[-1] == SENTENCE
        assert not any("Traceback" in line for line in lines)
        assert process.wait() == 130
        assert process.stdout is not None
        assert process.stdout.read() == ""


@pytest.mark.parametrize("module", ["click", "foretrain.decoding", "numpy", "foretrain.prediction.answer"])
def test_also_while_it_imports(start: Start, module: str) -> None:
    with start(*PREDICT, options=("-X", "importtime")) as process:
        lines = interrupt_at(process, f" {module}\n")
        own = [line for line in lines if not line.startswith("import time:")]
        assert own[-1] == SENTENCE
        assert not any("Traceback" in line for line in own)
        assert process.wait() == 130


def test_a_pipe_gets_a_line_for_each_phase_and_json_stays_json(start: Start) -> None:
    with start(*TRACE, "--json") as process:
        printed, errors = process.communicate()
    assert json.loads(printed)["memory"]["fits"] is True
    lines = errors.splitlines()
    assert "predict own.py:model: recording own.py:model" in lines
    assert all(line.startswith("predict own.py:model: ") for line in lines)


@pytest.mark.parametrize(
    ("command", "line"),
    [
        ("plan mnist-cnn --steps 9 --batch 64 --gpu t4 --max-gpus 1", "plan mnist-cnn: reading the offers"),
        ("guide mnist-cnn --on t4 --batch 64", "guide: reading the models"),
        ("learn EXAMPLES/learn_timings.csv --target seconds --technique linear", "learn: "),
        (
            "simulate EXAMPLES/jobs.csv --cluster EXAMPLES/cluster.yaml --times EXAMPLES/times.csv",
            "simulate: ",
        ),
        ("converge EXAMPLES/loss.csv --target loss=0.7", "converge: fitting curves"),
    ],
    ids=lambda value: value.split()[0].rstrip(":"),
)
def test_every_slow_verb_names_its_phases_in_a_pipe(start: Start, command: str, line: str) -> None:
    examples = Path(__file__).parents[2] / "docs" / "examples"
    with start(*command.replace("EXAMPLES", str(examples)).split()) as process:
        printed, errors = process.communicate()
    assert process.returncode == 0, errors
    assert line in errors
    assert line not in printed


def test_a_terminal_gets_one_line_that_is_removed(start: Start) -> None:
    parent, child = pty.openpty()
    with start(*TRACE, stderr=child) as process:
        os.close(child)
        shown = b""
        try:
            while piece := os.read(parent, 4096):
                shown += piece
        except OSError:  # the other end is closed
            pass
        process.communicate()
    os.close(parent)
    assert b"predict own.py:model: recording own.py:model" in shown
    assert shown.endswith(b"\r\x1b[2K")
    assert b"\n" not in shown


def test_phases_are_nested() -> None:
    heard: list[str] = []

    def hear(doing: str, share: float | None = None, /) -> None:
        del share
        heard.append(doing)

    with listen(hear), phase("searching"):
        with phase("recording"):
            pass
        no_progress("not heard")
    with phase("not heard either"):
        pass
    assert heard == ["searching", "recording", "searching", ""]
