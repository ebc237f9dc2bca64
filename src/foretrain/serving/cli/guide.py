"""`foretrain guide`: which hardware to buy or rent for which network and batch size."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from foretrain.decoding import FILE, option, texts
from foretrain.panels import OUTPUT
from foretrain.serving.cli.frame import Command, Output, check_file, write_report
from foretrain.serving.cli.terminal import print_answer, spinner
from foretrain.serving.requests.plan import GuideRequest


@dataclass(frozen=True, kw_only=True)
class GuideOutput(Output):
    """What `guide` prints and writes."""

    show: tuple[str, ...] = option(
        texts(), "time, cost, speedup, memory, verdict; also throughput, value, transfer.", default=(),
        panel=OUTPUT, metavar="VIEWS",
    )  # fmt: skip
    html: Path | None = option(FILE, "Write the guide as one self-contained page.", panel=OUTPUT)


def run(request: GuideRequest, output: GuideOutput) -> None:
    """Fill the guide, write its page if asked for, and print it."""
    from foretrain.serving.verbs import predicting
    from foretrain.serving.views.guide import check_names

    check_names(output.show)
    check_file("--html", output.html)
    with spinner("Guide") as progress:
        answer = predicting.guide(request, progress)
    if output.html is not None:
        write_report(output.html, answer, "guide")
    written = () if output.html is None else (f"Page: {output.html}",)
    print_answer(answer, output.json, written, names=output.show)


COMMAND = Command(
    GuideRequest,
    GuideOutput,
    run,
    "Every machine trains the same global batch. Reports time, cost, speed-up, memory and bottleneck, the "
    "recommended machine, and the batch size from which more GPUs pay off. Without --on, compares a CPU "
    "with 1, 2, 4 and 8 GPUs of three classes at the lowest current prices.",
    (
        "foretrain guide resnet50 --precision fp16 --samples 1281167",
        "foretrain guide voice-linear voice-conv --on gtx1080ti --counts 1,2,4 --strategy dp --samples 2000",
        "foretrain guide mnist-cnn resnet18 --on epyc-7742 --on rtx2080ti --counts 1,2,4,8 --html guide.html",
        "foretrain guide bert-large --on aws:g5.xlarge,aws:g5.12xlarge --batch 32..512 --show time,cost",
    ),
)
