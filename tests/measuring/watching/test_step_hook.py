"""`foretrain.step()`: what a script writes, and what is read of it."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from foretrain.measuring.watching.step_files import HookReader, MarkLog, hooked_steps
from foretrain.measuring.watching.step_hook import CHANNEL_VARIABLE, RECORD, file_name
from foretrain.store.runs import WorkerSteps


def run(code: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def steps_in(folder: Path) -> tuple[WorkerSteps, ...]:
    logs: dict[int, MarkLog] = {}
    for marks in HookReader(folder, 0.0).new_marks():
        logs.setdefault(marks.worker, MarkLog()).add(marks.ends, marks.waits)
    return hooked_steps(logs)


FIVE = "import foretrain\nfor _ in range(5): foretrain.step()"


def test_a_watched_script_records_its_steps_and_loads_nothing_heavy(tmp_path: Path) -> None:
    code = f"{FIVE}\nimport sys; print({{'numpy', 'torch', 'click'}} & set(sys.modules))"
    ended = run(code, **{CHANNEL_VARIABLE: str(tmp_path)})
    assert (ended.returncode, ended.stdout) == (0, "set()\n"), ended.stderr
    (steps,) = steps_in(tmp_path)
    assert (steps.worker, len(steps.seconds), len(steps.input_seconds)) == (0, 4, 0)
    assert np.all(steps.seconds >= 0)


def test_an_unwatched_script_does_nothing(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != CHANNEL_VARIABLE}
    subprocess.run([sys.executable, "-c", FIVE], env=environment, check=True, cwd=tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("folder", ["/nowhere/at/all", "/dev/null"])
def test_a_folder_that_cannot_be_written_does_not_disturb_the_script(folder: str) -> None:
    assert run(FIVE, **{CHANNEL_VARIABLE: folder}).returncode == 0


def test_ranks_are_kept_apart(tmp_path: Path) -> None:
    for rank in ("3", "1"):
        run(FIVE, RANK=rank, LOCAL_RANK="0", **{CHANNEL_VARIABLE: str(tmp_path)})
    assert [steps.worker for steps in steps_in(tmp_path)] == [1, 3]


def test_a_forked_process_writes_its_own_file(tmp_path: Path) -> None:
    code = (
        "import foretrain, os\nforetrain.step()\nif os.fork() == 0: foretrain.step(); os._exit(0)\nos.wait()"
    )
    run(code, **{CHANNEL_VARIABLE: str(tmp_path)})
    assert len(list(tmp_path.iterdir())) == 2


def test_input_waits_are_given_or_measured(tmp_path: Path) -> None:
    given = "import foretrain\nfor _ in range(3): foretrain.step(input_seconds=0.25)"
    run(given, RANK="0", **{CHANNEL_VARIABLE: str(tmp_path)})
    timed = (
        "import foretrain, time\n"
        "class Slow(list):\n"
        "    def __iter__(self):\n"
        "        for item in super().__iter__():\n"
        "            time.sleep(0.02)\n"
        "            yield item\n"
        "loader = foretrain.timed_input(Slow([1, 2, 3]))\n"
        "assert len(loader) == 3 and loader.count(2) == 1\n"
        "for _ in loader: foretrain.step()"
    )
    ended = run(timed, RANK="1", **{CHANNEL_VARIABLE: str(tmp_path)})
    assert ended.returncode == 0, ended.stderr
    first, second = steps_in(tmp_path)
    assert list(first.input_seconds) == [0.25, 0.25]
    assert np.all(second.input_seconds >= 0.019)
    assert np.all(second.input_seconds <= second.seconds + 1e-3)


def test_a_growing_file_is_read_on_from_where_it_ended(tmp_path: Path) -> None:
    file = tmp_path / file_name(2, 0, 77)
    reader = HookReader(tmp_path, origin=100.0)
    file.write_bytes(RECORD.pack(101.0, 0.5) + b"half")
    (first,) = reader.new_marks()
    file.write_bytes(RECORD.pack(101.0, 0.5) + RECORD.pack(103.0, 0.25))
    (second,) = reader.new_marks()
    assert (first.worker, first.pid, list(first.ends), list(first.waits)) == (2, 77, [1.0], [0.5])
    assert (list(second.ends), list(second.waits)) == ([3.0], [0.25])
    assert reader.new_marks() == []
