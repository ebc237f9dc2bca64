"""Commands import what their answer uses: others take longer to import than the answer takes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

LOG = "step,loss\n" + "".join(f"{step},{0.5 + 3 * step**-0.4}\n" for step in range(100, 2000, 100))
_MODULES = """
import sys
from foretrain.serving.cli import main
try:
    main()
finally:
    print(*sorted(sys.modules), file=sys.stderr)
"""
PREDICT = ("predict", "mnist-cnn", "--on", "t4", "--batch", "64", "--precision", "fp16", "--json")
LIBRARIES = """
torch scipy sklearn pandas sqlalchemy alembic rich jinja2 plotext yaml PIL asyncio unittest
""".split()
PARTS = """
backends callbacks convergence.curves convergence.forecast facts.offers facts.price_files facts.providers
facts.running facts.topology jobs.bill jobs.epochs jobs.interruptions jobs.job learning measuring planning
prediction.advice.remedies prediction.corrections.error_model prediction.corrections.timings
prediction.corrections.workers prediction.heterogeneous prediction.resources prediction.search
prediction.step.cpu_workers prediction.step.offload prediction.step.parameter_servers scheduling
serving.cli.completion serving.python serving.rendering serving.requests.listing
serving.requests.planning serving.requests.scheduling serving.verbs.listing serving.verbs.measuring
serving.verbs.stored_runs serving.views.blocks store testing workloads.readers.huggingface
workloads.readers.python_file workloads.tracing
""".split()
"""Packages and modules of foretrain that the step of a known model on one GPU has no use for."""


def imported(*command: str) -> set[str]:
    """The modules that a process has loaded when a command ends."""
    run = subprocess.run(
        [sys.executable, "-c", _MODULES, *command], capture_output=True, text=True, check=True
    )
    return set(run.stderr.split())


@pytest.mark.parametrize(
    "arguments",
    [("converge", "{log}", "--target", "loss=0.6"), ("predict", "mnist-cnn", "--on", "t4")],
    ids=lambda arguments: str(arguments[0]),
)
def test_scipy_is_not_loaded(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    log = tmp_path / "log.csv"
    log.write_text(LOG, encoding="utf-8")
    loaded = imported(*(part.format(log=log) for part in arguments))
    assert "foretrain.serving.cli" in loaded
    assert "scipy" not in loaded


def test_a_prediction_as_json_imports_what_it_uses() -> None:
    imported(*PREDICT)  # the model may have to be traced
    loaded = imported(*PREDICT)
    assert "foretrain.prediction.predict" in loaded
    assert sorted(loaded.intersection(LIBRARIES)) == []
    unused = tuple(f"foretrain.{part}" for part in PARTS)
    inside = tuple(f"{name}." for name in unused)
    assert [name for name in sorted(loaded) if name in unused or name.startswith(inside)] == []


def test_a_process_that_ends_is_not_searched_for_garbage() -> None:
    """Graphs are large: the last search for cycles took a fifth of a command."""
    code = (
        "import atexit, gc, sys; from foretrain.serving.cli import main; "
        "atexit.register(lambda: sys.stderr.write(str(gc.get_freeze_count() > 0))); "
        "sys.argv[1:] = ['--version']; main()"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stderr == "True"
