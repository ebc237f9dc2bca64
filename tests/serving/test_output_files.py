"""Every option that writes a file: into links, devices, FIFOs, what is full and what is read-only."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from foretrain.errors import BackendFailed

PREDICT = "predict resnet50 --on t4 --batch 8"
BUY = "rent-or-buy --price 10000usd --rent 2usd"


def foretrain(*arguments: str, redirect: str = "") -> subprocess.CompletedProcess[str]:
    shell = f'exec "$0" -m foretrain "$@" {redirect}'
    return subprocess.run(
        ["bash", "-c", shell, sys.executable, *arguments], capture_output=True, text=True, check=False
    )


@pytest.fixture
def full(tmp_path: Path) -> Path:
    """A device that is always full, as a node of our own; the real one is only ever opened."""
    node = tmp_path / "full.svg"
    try:
        os.mknod(node, 0o666 | stat.S_IFCHR, os.makedev(1, 7))
        node.open("wb").close()
    except PermissionError:
        pytest.skip("device nodes are not allowed here")
    return node


@pytest.mark.parametrize(("flag", "command"), [("--timeline", PREDICT), ("--plot", BUY)])
def test_a_full_device_is_the_documented_error_and_stays_a_device(
    full: Path, flag: str, command: str
) -> None:
    run = foretrain(*command.split(), flag, str(full))
    assert run.returncode == BackendFailed.exit_code, run.stderr
    assert run.stderr == f"error: {flag} {full} cannot be written: No space left on device\n"
    assert full.is_char_device()
    assert list(full.parent.glob("*.svg")) == [full]


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="needs a device that is always full")
def test_the_real_full_device_survives_too() -> None:
    run = foretrain(*PREDICT.split(), "--timeline", "/dev/full")
    assert run.stderr == "error: --timeline /dev/full cannot be written: No space left on device\n"
    assert Path("/dev/full").is_char_device()


def test_a_fifo_is_read_by_the_next_program(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    script = (
        '"$0" -m foretrain predict resnet50 --on t4 --batch 8 --timeline "$1" >/dev/null & cat "$1"; wait'
    )
    read = subprocess.run(
        ["bash", "-c", script, sys.executable, str(tmp_path / "fifo")],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert json.loads(read.stdout)["traceEvents"]
    assert (tmp_path / "fifo").is_fifo()


def test_a_link_stays_and_its_target_is_drawn(tmp_path: Path) -> None:
    (tmp_path / "link.svg").symlink_to("target.svg")
    run = foretrain(*BUY.split(), "--plot", str(tmp_path / "link.svg"))
    assert run.returncode == 0, run.stderr
    assert (tmp_path / "link.svg").is_symlink()
    assert (tmp_path / "target.svg").read_text().startswith("<svg")


@pytest.mark.parametrize(("flag", "file"), [("--timeline", "trace.json"), ("--plot", "costs.svg")])
def test_a_folder_that_takes_no_files(flag: str, file: str) -> None:
    command = PREDICT if flag == "--timeline" else BUY
    run = foretrain(*command.split(), flag, f"/proc/{file}")
    assert run.returncode == BackendFailed.exit_code
    assert run.stderr.startswith(f"error: {flag} /proc/{file} cannot be written: ")


def test_standard_output_keeps_what_stands_before_and_after(tmp_path: Path) -> None:
    """A shell that redirects to a file gives a name that leads to a regular file."""
    out = tmp_path / "out"
    out.write_text("before\n")
    run = foretrain(*PREDICT.split(), "--timeline", "/dev/stdout", redirect=f">> {out}")
    assert run.returncode == 0, run.stderr
    lines = out.read_text()
    assert lines.startswith('before\n{\n  "traceEvents"')
    assert lines.rstrip().endswith("Timeline: /dev/stdout")
