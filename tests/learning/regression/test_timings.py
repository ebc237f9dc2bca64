"""Files of timings: what is read, and the errors of malformed ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from foretrain.errors import InvalidData, InvalidRequest, MissingData, UnknownName
from foretrain.learning.regression.timings import Configuration, Timing, of_model, read_timings


def written(folder: Path, text: str) -> Path:
    """A file with some text."""
    file = folder / "timings.csv"
    file.write_text(text, encoding="utf-8")
    return file


def test_reads_all_columns(tmp_path: Path) -> None:
    text = "model,device,gpus,batch,threads,disk_delay_seconds,iterations,seconds\n"
    file = written(tmp_path, text + "resnet50,Tesla T4,2,32,4,0.5,100,60.5\n\n")
    expected = Configuration("t4", gpus=2, batch=32, threads=4, disk_delay_seconds=0.5, iterations=100)
    assert read_timings(file) == (Timing(expected, 60.5, "resnet50"),)


def test_what_is_left_out_is_one_gpu_one_step_no_delay(tmp_path: Path) -> None:
    (found,) = read_timings(written(tmp_path, "seconds, device\n0.25, t4\n"))
    assert found == Timing(Configuration("t4", 1, 1, 1, 0, 1), 0.25, "")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("device,batch\nt4,1\n", r"row 1: missing columns 'seconds'"),
        ("device,seconds,gpu\nt4,1,1\n", r"row 1: unknown columns 'gpu'; known are model, device, gpus"),
        ("device,seconds,seconds\nt4,1,1\n", r"row 1: repeated columns 'seconds'"),
        ("device,seconds\nt4,1\nt4\n", r"row 3: 1 fields where the header has 2"),
        ("device,seconds\nt4,fast\n", r"row 2: seconds is 'fast', not a number"),
        ("device,seconds\nt4,0\n", r"row 2: seconds is 0; it must be above 0"),
        ("device,seconds\nt4,nan\n", r"row 2: seconds is nan"),
        ("device,batch,seconds\nt4,-4,1\n", r"row 2: batch is -4; it must be above 0"),
        ("device,seconds\nt44,1\n", r"row 2: no device 't44'; did you mean"),
        ("device,seconds\na100,1\n", r"row 2: 'a100' is a family of devices"),
        ("device,seconds\n", r"holds a header and no timings"),
        ("", r"row 1: missing columns 'device', 'seconds'"),
    ],
)
def test_errors_of_wrong_files_name_the_problem(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(InvalidData, match=problem):
        read_timings(written(tmp_path, text))


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(MissingData, match="its columns are model, device, gpus"):
        read_timings(tmp_path / "none.csv")


def test_a_disk_may_not_delay_but_a_job_needs_a_gpu() -> None:
    assert Configuration("t4", disk_delay_seconds=0).disk_delay_seconds == 0
    with pytest.raises(InvalidRequest, match="gpus is 0"):
        Configuration("t4", gpus=0)


def test_timings_of_one_network() -> None:
    found = [Timing(Configuration("t4"), 1.0, name) for name in ("vgg16", "resnet50")]
    assert [timing.model for timing in of_model(found, "vgg16")] == ["vgg16"]
    with pytest.raises(UnknownName, match="resnet50"):
        of_model(found, "resnet5")
