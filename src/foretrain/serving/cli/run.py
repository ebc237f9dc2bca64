"""`foretrain run`: the jobs of a file for real, and forecast against bill."""

from __future__ import annotations

from foretrain.serving.cli.frame import Command, Output
from foretrain.serving.cli.terminal import as_far_as_it_is_read, print_answer, spinner
from foretrain.serving.requests import RunRequest


def run(request: RunRequest, output: Output) -> None:
    """Run all jobs, then print what became of them."""
    from foretrain.serving import verbs

    with spinner(f"Running {request.name}") as progress:
        answer = verbs.run(request, progress)
    with as_far_as_it_is_read():
        print_answer(answer, output.json)


COMMAND = Command(
    RunRequest,
    Output,
    run,
    "Each job has a command, with placeholders such as {gpus}, {checkpoint} and {progress}, or a zoo model "
    "with steps, which is trained on CPUs. You can interrupt the scheduler at any time and run it again: "
    "it picks up finished and running jobs and starts no job twice. Reports the bill next to the forecast.",
    (
        "foretrain run jobs.csv --cluster cluster.yaml --times times.csv",
        "foretrain run jobs.csv --cluster cluster.yaml --backend slurm --backend-option partition=gpu",
        "foretrain run jobs.csv --cluster cluster.yaml --backend ray --name nightly --folder /shared/nightly",
    ),
)
