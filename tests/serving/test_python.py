"""The verbs in Python: keywords are options, answers are what `--json` prints, notebooks get a table."""

from __future__ import annotations

import doctest
import inspect
import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from scripts import write_keywords

import foretrain as ft
from foretrain.decoding import options
from foretrain.serving.python import keyword_options
from foretrain.serving.table import VERBS, VerbEntry

Run = Callable[..., CompletedProcess[str]]
PLANNED: dict[str, Any] = {"samples": 60_000, "epochs": 100, "gpu": "t4", "cloud": "aws"}


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A loss that falls as a power of the step."""
    file = tmp_path / "log.csv"
    rows = [f"{step},{0.2 + 2 * step**-0.5}" for step in range(10, 400, 10)]
    file.write_text("\n".join(["step,loss", *rows]) + "\n")
    return file


@pytest.fixture
def timings(tmp_path: Path) -> Path:
    """Six timed configurations of a job."""
    file = tmp_path / "timings.csv"
    rows = ["1,32,0.1", "2,32,0.12", "4,32,0.125", "1,64,0.19", "4,64,0.22", "4+4,32,0.15"]
    file.write_text("\n".join(["placement,batch,step_seconds", *rows]) + "\n")
    return file


@pytest.mark.parametrize("verb", VERBS)
def test_the_examples_of_the_documentation_are_true(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("docs", "campaigns"):
        (tmp_path / folder).symlink_to(Path(__file__).parents[2] / folder)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FORETRAIN_STORE", str(tmp_path / "runs.sqlite"))
    finder = doctest.DocTestFinder(recurse=False)
    (test,) = finder.find(getattr(ft, verb), verb, globs={"ft": ft})
    assert test.examples, "every verb has an example"
    printed: list[str] = []
    outcome = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=printed.append)
    assert outcome.failed == 0, "".join(printed)


def test_type_checkers_and_editors_see_the_present_options() -> None:
    assert write_keywords.FILE.read_text(encoding="utf-8") == write_keywords.stub_text(), (
        "options have changed: run python scripts/write_keywords.py"
    )


@pytest.mark.parametrize("verb", VERBS.values(), ids=lambda verb: verb.name)
def test_help_says_what_every_keyword_means(verb: VerbEntry) -> None:
    documented = inspect.getdoc(getattr(ft, verb.name)) or ""
    for each in keyword_options(verb):
        assert f"\n    {each.name}: " in documented


def test_loss_is_a_function_of_a_module_or_the_option() -> None:
    assert ft.trace("gpt2-small", batch=1, seq_len=16, loss="fused").workload.options.loss == "fused"


@pytest.mark.parametrize("verb", VERBS.values(), ids=lambda verb: verb.name)
def test_keywords_are_the_options(verb: VerbEntry) -> None:
    parameters = inspect.signature(getattr(ft, verb.name)).parameters
    declared = options(verb.request_class)
    assert {each.name for each in declared} <= set(parameters)
    required = {each.name for each in declared if each.is_required and not each.positional}
    assert required <= {
        name
        for name, each in parameters.items()
        if each.kind is each.KEYWORD_ONLY and each.default is each.empty
    }


@pytest.mark.parametrize(
    ("command", "call"),
    [
        (
            "predict mnist-cnn --on t4:2 --global-batch 64 --samples 600 --epochs 3 --usd-per-hour $1.5",
            lambda: ft.predict(
                "mnist-cnn", on="t4:2", global_batch=64, samples=600, epochs=3, usd_per_hour="$1.5"
            ),
        ),
        ("trace mnist-cnn --batch 8 --layers", lambda: ft.trace("mnist-cnn", batch=8, layers=True)),
        (
            "plan mnist-cnn --samples 60000 --epochs 100 --gpu t4 --cloud aws --deadline 12h",
            lambda: ft.plan("mnist-cnn", deadline="12h", **PLANNED),
        ),
        (
            "guide mnist-cnn --on t4,t4:2 --batch 32..64",
            lambda: ft.guide("mnist-cnn", on=["t4", "t4:2"], batch=[32, 64]),
        ),
        ("rent-or-buy --price 8k$ --rent 1.5", lambda: ft.rent_or_buy(price="8k$", rent=1.5)),
    ],
    ids=lambda value: value.split()[0] if isinstance(value, str) else "",
)
def test_an_answer_is_what_json_prints_and_its_page_in_a_notebook(
    run_here: Run, command: str, call: Callable[[], ft.Answer]
) -> None:
    answer = call()
    assert json.loads(run_here(*command.split(), "--json").stdout) == json.loads(answer.to_json())
    page = answer._repr_html_()
    assert page.startswith('<div class="foretrain">') and page.count("<table") >= 1
    assert len(answer.summary()) > 1


def test_files_answer_as_json_does(run_here: Run, log: Path, timings: Path) -> None:
    converged = ft.converge(log, target="loss=0.4")
    printed = run_here("converge", str(log), "--target", "loss=0.4", "--json").stdout
    assert json.loads(printed) == json.loads(converged.to_json())
    scaled = ft.scaling(str(timings))
    printed = run_here("scaling", str(timings), "--json").stdout
    assert json.loads(printed) == json.loads(scaled.to_json())


def test_a_verb_takes_its_request() -> None:
    request = ft.PredictRequest(model="mnist-cnn", on="t4", batch=8, advice=False)
    by_request, by_keywords = ft.predict(request), ft.predict("mnist-cnn", on="t4", batch=8, advice=False)
    assert isinstance(by_request, ft.JobPrediction) and isinstance(by_keywords, ft.JobPrediction)
    assert by_request.to_dict() == by_keywords.to_dict()
    other = ft.predict(request, batch=16)
    assert isinstance(other, ft.JobPrediction) and other.batch == 16
    with pytest.raises(ft.InvalidRequest, match="plan takes a PlanRequest, not a PredictRequest"):
        ft.plan(request)  # type: ignore[arg-type]


def test_a_workload_file_from_python(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(
        "model: mnist-cnn\non: t4:2\nglobal_batch: 64\nstrategy: zero1\nsamples: 600\nepochs: 3\n"
    )
    answer = ft.predict(str(file), advice=False)
    assert isinstance(answer, ft.JobPrediction) and answer.job is not None
    assert (answer.strategy, answer.parallelism.global_batch, answer.job.steps) == ("zero1", 64, 3 * 10)


def test_a_heterogeneous_cluster_from_python(tmp_path: Path) -> None:
    file = tmp_path / "lab.yaml"
    file.write_text("nodes: [{device: v100-sxm2-16gb}, {device: k80, count: 2}]\nnetwork: ethernet-10g\n")
    answer = ft.predict("mnist-cnn", on=str(file), global_batch=4096, samples=60_000, advice=False)
    assert isinstance(answer, ft.JobPrediction) and answer.split is not None
    assert sum(share.samples for share in answer.split.shares) == 4096
    assert answer.epoch is not None and answer.epoch.steps == 15


def test_nothing_that_fits_is_an_answer_in_python_too() -> None:
    answer = ft.predict("resnet18", image_size=20_000, on="k80:2", strategy="auto")
    assert isinstance(answer, ft.Infeasible)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: ft.predict("mnist-cnn", on="t4", bach=8),  # type: ignore[call-arg]
            "no field 'bach'; did you mean batch",
        ),
        (
            lambda: ft.predict("mnist-cnn", on="t4", batch="many"),  # type: ignore[arg-type]
            "`batch` is 'many'; it must be a whole",
        ),
        (
            lambda: ft.predict("mnist-cnn", on="t4", deadline="12h"),  # type: ignore[call-arg]
            "does not read `deadline`",
        ),
        (lambda: ft.predict("mnist-cnn"), "`on` is required"),
        (lambda: ft.predict("mnist-cnn", on="t4", steps=3, epochs=2, samples=4), "steps"),
        (lambda: ft.predict("mnist-cnn", on="t4", inputs=1), "`inputs` and `loss` belong to a module"),
        (
            lambda: ft.predict(object(), on="t4", inputs=1),  # type: ignore[arg-type]
            "it must be a name, a file or a torch.nn.Module",
        ),
        (lambda: ft.plan("mnist-cnn", deadline="soon", **PLANNED), "'soon' is not a duration"),
        (lambda: ft.rent_or_buy(rent=1), "`price` is required"),
    ],
)
def test_mistakes_are_errors_that_name_fields(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(ft.InvalidRequest, match=message) as raised:
        call()
    assert "--" not in str(raised.value)


def test_a_live_module() -> None:
    import torch

    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
    before = {name: value.clone() for name, value in module.state_dict().items()}
    x, y = torch.randn(8, 16), torch.zeros(8, dtype=torch.int64)

    def loss(output: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(output, y)

    traced = ft.trace(module.eval(), inputs=(x,), loss=loss)
    assert traced.step.parameters == 16 * 32 + 32 + 32 * 4 + 4
    assert traced.step.samples == 8
    # 2 FLOP for each weight and sample forward; backward twice that, but none to the gradient of the input
    assert traced.step.forward.flop == 2 * 8 * (16 * 32 + 32 * 4)
    assert traced.step.backward.flop == 2 * 8 * (16 * 32 + 2 * 32 * 4)
    answer = ft.predict(module, inputs=(x,), loss=loss, on="t4:2", strategy="fsdp", advice=False)
    assert isinstance(answer, ft.JobPrediction)
    assert (answer.workload.source.name, answer.batch, answer.strategy) == ("Sequential", 8, "fsdp")
    wider = ft.predict(module, inputs={"input": x}, loss=loss, on="t4", batch=64, advice=False)
    assert isinstance(wider, ft.JobPrediction) and wider.batch == 64, "targets follow the batch"
    assert not module.training and all(value.device.type == "cpu" for value in module.parameters())
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())


def test_graphs_of_live_modules_are_not_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setenv("FORETRAIN_HOME", str(tmp_path / "empty"))
    ft.trace(torch.nn.Linear(4, 2), inputs=torch.zeros(3, 4), loss=lambda output: output.sum())
    assert not list(tmp_path.rglob("*.graph"))


def test_a_live_module_needs_inputs() -> None:
    import torch

    with pytest.raises(ft.InvalidRequest, match="Linear needs example inputs: give `inputs`"):
        ft.predict(torch.nn.Linear(4, 2), on="t4")
    with pytest.raises(ft.InvalidRequest, match="has no seq_len"):
        ft.trace(torch.nn.Linear(4, 2), inputs=torch.zeros(3, 4), seq_len=8)
