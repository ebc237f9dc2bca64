"""Commands of jobs: what they are filled with, and what is refused."""

from __future__ import annotations

import sys

import pytest

from foretrain.backends.job_files import JobCommand, zoo_training
from foretrain.errors import InvalidRequest


def test_a_value_never_becomes_several_words() -> None:
    command = JobCommand("{python} train.py --gpus {gpus} --resume '{checkpoint}'")
    words = command.filled({"gpus": 2, "checkpoint": "/a folder/it's"})
    assert words == [sys.executable, "train.py", "--gpus", "2", "--resume", "/a folder/it's"]


@pytest.mark.parametrize(
    ("template", "problem"),
    [
        ("", "is empty"),
        ("train --gpus {gpu}", "unknown field {gpu}; there are {gpus}"),
        ("train 'unclosed", "cannot be read"),
        ("train {gpus", "cannot be read"),
    ],
)
def test_what_cannot_be_run_is_refused(template: str, problem: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        JobCommand(template)
    assert problem in str(caught.value)


def test_a_zoo_training_names_its_sizes() -> None:
    words = zoo_training("resnet18", 500, batch=8, image_size=64).filled(
        {"gpus": 2, "checkpoint": "c", "progress": "p"}
    )
    assert words[1:4] == ["-m", "foretrain.backends.trainer", "resnet18"]
    assert words[4:10] == ["--steps", "500", "--batch", "8", "--image-size", "64"]
    with pytest.raises(InvalidRequest, match="at least 1"):
        zoo_training("resnet18", 0)
