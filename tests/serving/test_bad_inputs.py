"""Bad values and files, on every command: one sentence that names them and says what would work.

The table is `bad_inputs.toml`. Every case is refused before anything heavy is computed.
"""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from tests.support.messages import says_what_works

from foretrain.serving.cli.app import SUMMARIES

Run = Callable[..., CompletedProcess[str]]

TABLE: dict[str, Any] = tomllib.loads((Path(__file__).parent / "bad_inputs.toml").read_text(encoding="utf-8"))
FILES: dict[str, str] = TABLE["files"]
CASES = [tuple(case) for name, cases in TABLE.items() if name != "files" for case in cases]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the table's files, which is the current one."""
    folder = tmp_path / "here"
    folder.mkdir()
    for name, text in FILES.items():
        (folder / name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(folder)
    return folder


def test_the_table_covers_every_command() -> None:
    assert len(CASES) >= 300
    assert len({line for _, line, _ in CASES}) == len(CASES)
    assert set(SUMMARIES) <= set(TABLE)


@pytest.mark.parametrize(("code", "line", "fragment"), CASES, ids=[line for _, line, _ in CASES])
def test_bad_input_is_refused_with_what_would_work(
    run_here: Run, folder: Path, own_home: Path, code: int, line: str, fragment: str
) -> None:
    arguments = shlex.split(line)
    run = run_here(*arguments)
    message = " ".join(run.stderr.split())
    assert (run.returncode, run.stdout) == (code, ""), message
    assert message.startswith("error: ")
    assert "Traceback" not in run.stderr
    assert fragment in message
    assert says_what_works(message), message
    assert _names_what_was_given(message, arguments), message
    assert {file.name for file in folder.iterdir()} == set(FILES), "nothing half-written"
    assert not (own_home / "measurements.json").exists()


def _names_what_was_given(message: str, arguments: list[str]) -> bool:
    """Whether the message has a value, option or file of the command line, or of such a file.

    Where something lacks, it says what.
    """
    files = [FILES[name] for argument in arguments for name in re.split(r"[=:]", argument) if name in FILES]
    words = [
        part for text in (*arguments, *files) for part in (text, *re.split(r"[=@:,\s\"]+", text)) if part
    ]
    lacks = re.search(
        r"missing|required|requires|give|takes either|no (model|device) ''|no completed", message
    )
    return any(word in message for word in words) or lacks is not None
