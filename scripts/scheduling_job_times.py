"""Predict how long the jobs of generated scheduling problems take, and write the table they are drawn from.

    python scripts/scheduling_job_times.py src/foretrain/scheduling/data/zoo_job_times.csv

The jobs are those of Ardagna's table (JJ1..JJ6) with the zoo's models as stand-ins: PyTorch's step is
predicted for TensorFlow too (JJ3 is JJ2, JJ6 is JJ5), and deepspeech2 stands for Mozilla DeepSpeech. The
batch of the table is divided over the GPUs, rounded to whole samples, so that the number of steps changes a
little where it does not divide evenly. Configurations that do not fit into memory have no row; the memory of
the framework itself is left out there, since that of today alone fills the 2 GB of a P600, on which the study
of 2019 ran AlexNet and ResNet-50.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import foretrain as ft
from foretrain.answers import Infeasible
from foretrain.jobs.predict import JobPrediction

JOBS = (
    # job, model, samples, epochs, global batch, optimizer
    ("JJ1", "deepspeech2", 64, 158, 4, "adam"),
    ("JJ2", "vgg19", 130_000, 1, 32, "momentum"),
    ("JJ4", "alexnet", 130_000, 12, 256, "momentum"),
    ("JJ5", "resnet50", 130_000, 3, 64, "momentum"),
)
GPUS = {"k80": 8, "m60": 8, "p600": 8, "gtx1080ti": 8}


def fits(answer: JobPrediction) -> bool:
    """Whether everything but the framework itself fits into memory."""
    own = sum(part.bytes for part in answer.memory.parts if part.name == "framework context")
    return answer.memory.bytes.p50 - own <= answer.memory.capacity_bytes


def main(path: Path) -> None:
    """Write a row for each job, device and number of GPUs that fits."""
    with path.open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(("job", "model", "samples", "epochs", "batch", "device", "gpus", "p10", "p50", "p90"))
        for job, model, samples, epochs, batch, optimizer in JOBS:
            for device, most in GPUS.items():
                for gpus in range(1, min(most, batch) + 1):
                    answer = ft.predict(
                        model,
                        on=f"{device}:{gpus}",
                        batch=max(1, round(batch / gpus)),
                        optimizer=optimizer,  # type: ignore[arg-type]  # a name of the table
                        samples=samples,
                        epochs=epochs,
                    )
                    if isinstance(answer, Infeasible) or not fits(answer):
                        continue
                    assert answer.job is not None, "the length is given"
                    seconds = answer.job.seconds
                    times = (f"{each:.4g}" for each in (seconds.p10, seconds.p50, seconds.p90))
                    table.writerow((job, model, samples, epochs, batch, device, gpus, *times))
                    file.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
