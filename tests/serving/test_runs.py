"""`foretrain runs`: what people and scripts see of the store."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from tests.serving.test_cli_frame import on_a_terminal
from tests.support.runs import plain_run, summary_of, whole_run

from foretrain.store import open_store
from foretrain.store.runs import Run, Status

Command = Callable[..., CompletedProcess[str]]
TIMINGS = "model,device,batch,step_seconds,precision\nresnet18,t4,64,0.2,fp32\nresnet18,t4,128,0.4,fp16\n"


@pytest.fixture
def stored() -> list[Run]:
    """Two runs in the user's store, the newer first."""
    newer = whole_run(id="aaaa1111", started_at=datetime.now(UTC), campaign="seeds", trial="1")
    older = plain_run(
        id="bbbb2222", status=Status.FAILED, exit_code=3, message="no data", summary=summary_of(0.2),
        started_at=datetime.now(UTC) - timedelta(days=30),
    )  # fmt: skip
    with open_store() as store:
        store.add_new([older, newer])
    return [newer, older]


def ids(result: CompletedProcess[str]) -> list[str]:
    assert result.returncode == 0, result.stderr
    return [run["id"] for run in json.loads(result.stdout)["runs"]]


@pytest.mark.usefixtures("stored")
class TestList:
    def test_a_table(self, run_here: Command) -> None:
        lines = run_here("runs", "list").stdout.splitlines()
        assert lines[0].split()[:3] == ["run", "started", "model"]
        assert lines[1].split()[0] == "aaaa1111"
        assert "100 ms     110 ms  +10.0%" in lines[1]
        assert "failed" in lines[2]
        assert lines[3].startswith("2 runs in ")

    @pytest.mark.parametrize(
        ("arguments", "wanted"),
        [
            ((), ["aaaa1111", "bbbb2222"]),
            (("--limit", "1"), ["aaaa1111"]),
            (("--status", "failed"), ["bbbb2222"]),
            (("--campaign", "seeds"), ["aaaa1111"]),
            (("--since", "7d"), ["aaaa1111"]),
            (("--since", "2020-01-01"), ["aaaa1111", "bbbb2222"]),
            (("--model", "resnet50"), []),
            (("--device", "here"), ["aaaa1111", "bbbb2222"]),
        ],
    )
    def test_conditions(self, run_here: Command, arguments: tuple[str, ...], wanted: list[str]) -> None:
        assert ids(run_here("runs", "list", *arguments, "--json")) == wanted

    def test_bad_conditions(self, run_here: Command) -> None:
        for arguments, complaint in (
            (("--since", "soon"), "a date such as 2026-11-16"),
            (("--status", "faild"), "did you mean failed"),
        ):
            result = run_here("runs", "list", *arguments)
            assert result.returncode == 2
            assert complaint in result.stderr


def test_an_empty_store_says_how_runs_get_there(run_here: Command) -> None:
    result = run_here("runs", "list")
    assert result.returncode == 0
    assert "foretrain measure -- COMMAND" in result.stdout
    assert ids(run_here("runs", "list", "--json")) == []


def test_another_store(run_here: Command, tmp_path: Path) -> None:
    with open_store(str(tmp_path / "other")) as store:
        store.add(plain_run(id="x"))
    assert ids(run_here("runs", "list", "--store", str(tmp_path / "other"), "--json")) == ["x"]


@pytest.mark.usefixtures("stored")
class TestShow:
    def test_steps_resources_and_prediction(self, run_here: Command) -> None:
        text = run_here("runs", "show", "aaaa").stdout
        assert "Run aaaa1111: completed, exit code 0, 2.50 s" in text
        assert "setting: batch=32 model=mnist-cnn on=here" in text
        assert "campaign: seeds, trial 1" in text
        for line in (
            "measured   90.0 ms  100 ms  120 ms  18 steps after 2 of warm-up, variation 4.0%, input stalls",
            "predicted  88.0 ms  110 ms  143 ms  measured, error +10.0%, interval holds",
            "network transmit  node 0, eth0   50.0 kB/s   1.02 MB/s  2.00 MB/s       40",
        ):
            assert line in text

    def test_a_failed_run(self, run_here: Command) -> None:
        text = run_here("runs", "show", "bbbb2222").stdout
        assert "failed, exit code 3" in text
        assert "message: no data" in text
        assert "No resource samples." in text

    def test_json(self, run_here: Command) -> None:
        answer = json.loads(run_here("runs", "show", "aaaa", "--json").stdout)
        assert answer["comparison"]["error"] == pytest.approx(0.1)
        assert answer["prediction"]["answer"] == {"step": {"seconds": 0.11}, "notes": ["a", None]}
        assert [use["resource"] for use in answer["resources"]] == ["cpu", "cpu", "network_transmit"]
        assert answer["workers"] == [{"worker": w, "node": 0, "steps": 20} for w in (0, 1)]

    def test_a_plot_on_a_terminal_only(self, run_here: Command) -> None:
        assert "Step times" in on_a_terminal("runs", "show", "aaaa")
        assert "Step times" not in run_here("runs", "show", "aaaa").stdout

    @pytest.mark.parametrize(("name", "complaint"), [("aaab", "did you mean"), ("", "foretrain runs list")])
    def test_unknown_runs(self, run_here: Command, name: str, complaint: str) -> None:
        result = run_here("runs", "show", name)
        assert (result.returncode, result.stdout) == (2, "")
        assert complaint in result.stderr


@pytest.mark.usefixtures("stored")
class TestCompare:
    def test_side_by_side(self, run_here: Command) -> None:
        text = run_here("runs", "compare", "aaaa", "bbbb").stdout
        rows = {line.split("  ")[0]: line for line in text.splitlines()}
        assert "200 ms (2.00x)" in rows["step"]
        assert rows["step"].split()[1:3] == ["100", "ms"]
        assert "failed" in rows["status"]

    def test_json(self, run_here: Command) -> None:
        answer = json.loads(run_here("runs", "compare", "bbbb", "aaaa", "--json").stdout)
        assert [run["id"] for run in answer["runs"]] == ["bbbb2222", "aaaa1111"]
        step = next(figure for figure in answer["figures"] if figure["name"] == "step")
        assert step["ratios"] == [1.0, 0.5]

    def test_one_run_is_nothing_to_compare(self, run_here: Command) -> None:
        result = run_here("runs", "compare", "aaaa", "aaaa1111")
        assert result.returncode == 2
        assert "at least two different runs" in result.stderr


class TestFiles:
    @pytest.mark.parametrize("suffix", ["csv", "parquet", "json"])
    def test_out_and_in(self, run_here: Command, stored: list[Run], tmp_path: Path, suffix: str) -> None:
        file = str(tmp_path / f"runs.{suffix}")
        assert "2 runs written" in run_here("runs", "export", file).stdout
        other = ("--store", str(tmp_path / "other.sqlite"))
        assert "2 runs added" in run_here("runs", "import", file, *other).stdout
        again = json.loads(run_here("runs", "import", file, *other, "--json").stdout)
        assert (again["runs"], again["added"]) == (2, 0)
        assert ids(run_here("runs", "list", *other, "--json")) == [run.id for run in stored]

    @pytest.mark.usefixtures("stored")
    def test_export_of_some(self, run_here: Command, tmp_path: Path) -> None:
        answer = run_here(
            "runs", "export", str(tmp_path / "x"), "--format", "json", "--campaign", "seeds", "--json"
        )
        assert json.loads(answer.stdout)["runs"] == 1
        none = run_here("runs", "export", str(tmp_path / "x.csv"), "--model", "resnet50")
        assert none.returncode == 3
        assert "no run in the store" in none.stderr
        for place, complaint in ((tmp_path, "is a folder"), (tmp_path / "a" / "b.csv", "there is no folder")):
            assert complaint in run_here("runs", "export", str(place)).stderr

    def test_timings(self, run_here: Command, tmp_path: Path) -> None:
        file = tmp_path / "timings.csv"
        file.write_text(TIMINGS)
        assert "2 runs added" in run_here("runs", "import", str(file)).stdout
        listed: list[dict[str, Any]] = json.loads(run_here("runs", "list", "--json").stdout)["runs"]
        assert {(run["setting"]["batch"], run["setting"]["precision"]) for run in listed} == {
            (64, "fp32"),
            (128, "fp16"),
        }
        assert "0 runs added" in run_here("runs", "import", str(file)).stdout

    @pytest.mark.parametrize(
        ("old", "new", "complaint"),
        [
            (
                "128,",
                "many,",
                "row 3: column batch: `batch` is 'many'; it must be a whole number of at least 1",
            ),
            ("fp16", "fp15", "row 3: column precision: `precision` is 'fp15'; it must be one of"),
            (
                ",precision",
                ",precison",
                "row 2: column precison: no field 'precison'; did you mean precision",
            ),
            ("t4,64", ",64", "row 2: column on is empty"),
            ("64,0.2", ",0.2", "row 2: column batch is empty"),
        ],
    )
    def test_malformed_timings(
        self, run_here: Command, tmp_path: Path, old: str, new: str, complaint: str
    ) -> None:
        file = tmp_path / "timings.csv"
        file.write_text(TIMINGS.replace(old, new))
        result = run_here("runs", "import", str(file))
        assert result.returncode == 2
        assert complaint in result.stderr
        assert ids(run_here("runs", "list", "--json")) == []

    def test_switches_of_a_table(self, run_here: Command, tmp_path: Path) -> None:
        file = tmp_path / "timings.csv"
        file.write_text("model,device,batch,step_seconds,compile\nresnet18,t4,64,0.2,yes\n")
        run_here("runs", "import", str(file))
        (run,) = json.loads(run_here("runs", "list", "--json").stdout)["runs"]
        assert run["setting"]["compile"] is True
        file.write_text("model,device,batch,step_seconds,compile\nresnet18,t4,64,0.2,maybe\n")
        assert (
            "column compile is 'maybe'; it must be yes or no" in run_here("runs", "import", str(file)).stderr
        )


@pytest.mark.usefixtures("stored")
class TestDelete:
    def test_with_yes(self, run_here: Command) -> None:
        assert "1 run deleted" in run_here("runs", "delete", "aaaa", "--yes").stdout
        assert ids(run_here("runs", "list", "--json")) == ["bbbb2222"]

    def test_a_campaign(self, run_here: Command) -> None:
        answer = json.loads(run_here("runs", "delete", "--campaign", "seeds", "--yes", "--json").stdout)
        assert answer == {"deleted": 1}
        assert "no campaign 'seed'" in run_here("runs", "delete", "--campaign", "seed", "--yes").stderr

    def test_without_a_terminal_nothing_is_asked(self, run_command: Command) -> None:
        result = run_command("runs", "delete", "aaaa")
        assert result.returncode == 2
        assert "without a terminal add --yes" in result.stderr

    def test_what_to_delete_must_be_given(self, run_here: Command) -> None:
        for arguments in ((), ("aaaa", "--campaign", "seeds")):
            result = run_here("runs", "delete", *arguments, "--yes")
            assert result.returncode == 2
            assert "either ids of runs or --campaign" in result.stderr

    @pytest.mark.parametrize(("answer", "left"), [("y", ["bbbb2222"]), ("n", ["aaaa1111", "bbbb2222"])])
    def test_a_terminal_is_asked(self, run_here: Command, answer: str, left: list[str]) -> None:
        ours, its = pty.openpty()
        process = subprocess.Popen(
            [sys.executable, "-m", "foretrain", "runs", "delete", "aaaa"], stdin=its, stdout=its, stderr=its
        )
        os.close(its)
        os.write(ours, f"{answer}\n".encode())
        assert process.wait(60) == 0
        os.close(ours)
        assert ids(run_here("runs", "list", "--json")) == left


def test_a_store_that_cannot_be_opened(run_here: Command, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"rubbish" * 1000)
    for place, code, complaint in (
        (tmp_path / "file", 2, "move the file away"),
        (tmp_path / "file" / "below", 4, "cannot be written"),
        ("postgresql://app@127.0.0.1:1/x", 4, "check that the server runs"),
        ("mysql://x", 2, "no store of the kind"),
    ):
        result = run_here("runs", "list", "--store", str(place))
        assert (result.returncode, result.stdout) == (code, "")
        assert complaint in result.stderr


def test_runs_without_a_setting_are_shown(run_here: Command) -> None:
    with open_store() as store:
        store.add(replace(whole_run(id="a"), setting={}, prediction=None))
    assert "-" in run_here("runs", "list").stdout
    assert run_here("runs", "show", "a").returncode == 0
