"""Files of timings and configurations: what is read, and the errors of malformed ones."""

from pathlib import Path

import pytest

from foretrain.errors import InvalidData, InvalidRequest, MissingData
from foretrain.learning.scaling.configurations import (
    Placement,
    ScalingConfiguration,
    read_configurations,
    read_timings,
)


def file_of(folder: Path, text: str) -> Path:
    file = folder / "timings.csv"
    file.write_text(text)
    return file


def test_placements_or_nodes_and_devices(tmp_path: Path) -> None:
    placed = read_timings(file_of(tmp_path, "placement,batch,step_seconds\n4+4,32,0.5\n1,32,0.2\n"))
    counted = read_timings(
        file_of(tmp_path, "step_seconds, batch, nodes, devices\n0.5, 32, 2, 8\n0.2,32,1,1\n")
    )
    assert placed == counted
    assert placed[0].configuration == ScalingConfiguration(Placement((4, 4)), 32)
    assert placed[0].step_seconds == 0.5


def test_configurations_have_no_time_or_one_that_is_passed_over(tmp_path: Path) -> None:
    bare = read_configurations(file_of(tmp_path, "placement,batch\n4,32\n"))
    assert bare == read_configurations(file_of(tmp_path, "placement,batch,step_seconds\n4,32,\n"))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("placement,step_seconds\n1,0.1\n", "row 1: lacks the column batch"),
        ("nodes,batch,step_seconds\n1,8,0.1\n", "row 1: lacks the column devices"),
        ("batch,step_seconds\n8,0.1\n", "row 1: lacks the column placement"),
        ("placement,batch,step_second\n1,8,0.1\n", "row 1: lacks the column step_seconds"),
        ("placement,batch,step_seconds,gpu\n1,8,0.1,t4\n", "row 1: unknown column 'gpu'"),
        ("placement,batch,batch,step_seconds\n1,8,8,0.1\n", "row 1: has the column 'batch' twice"),
        ("placement,batch,step_seconds\n1,8,0\n", "row 2: step_seconds '0' is not a time"),
        ("placement,batch,step_seconds\n1,8,-1\n", "row 2: step_seconds '-1' is not a time"),
        ("placement,batch,step_seconds\n1,8,nan\n", "row 2: step_seconds 'nan' is not a time"),
        ("placement,batch,step_seconds\n1,8,fast\n", "row 2: step_seconds 'fast' is not a time"),
        ("placement,batch,step_seconds\n1,8.5,1\n", "row 2: batch '8.5' is not a whole number"),
        ("placement,batch,step_seconds\n1,0,1\n", "row 2: batch '0' is not a whole number"),
        ("placement,batch,step_seconds\n1,8,1\n4x2,8,1\n", "row 3: placement '4x2' is not devices on"),
        ("nodes,devices,batch,step_seconds\n4,2,8,1\n", "row 2: 2 devices cannot use 4 nodes"),
        ("placement,batch,step_seconds\n2+4,8,1\n1,8,1\n4+2,8,2\n", "row 4: 4+2 at batch 8 stands in row 2"),
        ("placement,batch,step_seconds\n1,8\n", "row 2: more or fewer values than the header"),
        ("placement,batch,step_seconds\n", "has no rows below its header"),
        ("", "row 1: lacks the column placement, batch, step_seconds"),
    ],
)
def test_errors_of_malformed_files_name_the_row(tmp_path: Path, text: str, problem: str) -> None:
    file = file_of(tmp_path, text)
    with pytest.raises(InvalidData) as error:
        read_timings(file)
    assert problem in str(error.value)
    assert str(file) in str(error.value)


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(MissingData, match="there is no file"):
        read_timings(tmp_path / "absent.csv")
    with pytest.raises(InvalidRequest, match="is a folder"):
        read_timings(tmp_path)
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidData, match="is not a CSV file"):
        read_timings(tmp_path / "binary.csv")


def test_the_same_configuration_may_be_asked_for_twice(tmp_path: Path) -> None:
    file = tmp_path / "configurations.csv"
    file.write_text("placement,batch\n1+2,16\n2+1,16\n1+2,16\n")
    assert [str(each) for each in read_configurations(file)] == [
        "1+2 at batch 16",
        "2+1 at batch 16",
        "1+2 at batch 16",
    ]
