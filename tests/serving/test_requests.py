"""Requests: every option declared once, and what is given over workload files over defaults."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrain.decoding import options, parse_mapping, values
from foretrain.errors import ForetrainError, InvalidData, InvalidRequest, MissingData
from foretrain.panels import PANELS
from foretrain.serving.requests import Request, request_from, workload_file_values
from foretrain.serving.requests.planning import GuideModel, PlanRequest
from foretrain.serving.requests.predicting import PredictRequest, TraceRequest
from foretrain.serving.table import VERBS
from foretrain.serving.verbs.predicting import workload
from foretrain.workloads.workload import workload_of

REQUESTS = tuple({verb.request: verb.request_class for verb in VERBS.values()}.values())
CONFIG = Path(__file__).parents[2] / "docs" / "examples" / "configs" / "deepspeed.json"
EVERYTHING = {
    "from_config": str(CONFIG),
    "on": "t4:2", "batch": 4, "global_batch": 8, "micro_batches": 2, "seq_len": 128, "image_size": 32,
    "precision": "bf16", "optimizer": "sgd", "attention": "flash", "channels_last": True, "compile": True,
    "cuda_graphs": True, "checkpoint_activations": True,
    "selective_checkpointing": True, "gradient_release": True, "offload": ["optimizer"],
    "weights": "bf16", "master_weights": True, "gradients": "fp32", "autocast": False,
    "lora": "r=8", "forward_only": True, "no_optimizer": True, "trace": "real",
    "strategy": "fsdp", "min_batch": 2,
    "links": "pcie3-x16", "network": "ethernet-10g", "topology": "/topology.txt",
    "jitter": 0.1, "dataset": "mnist", "storage": "hdd",
    "loader_workers": 2, "prefetch": False, "cost_model": "roofline", "timings": "/t.csv", "samples": 1000,
    "epochs": 3.0, "steps": 10, "tokens": 1e9, "target": "loss=0.4", "log": "/log.csv", "planned_steps": 9.0,
    "schedule": "cosine", "history": "/runs", "epochs_at": ["32=1", "64=2"], "critical_batch": 5.0,
    "reference_batch": 6, "startup": "60s", "checkpoint_every": "61s", "checkpoint_rate": 1e9,
    "eval_samples": 7, "power_limit": 60.0, "framework": "megatron", "loss": "fused",
    "fp8_scaling": "current", "software_year": 2024,
    "eval_every": 8, "spot": True, "interruptions_per_day": 0.5, "usd_per_hour": 3.0, "region": "FRA",
    "advice": False,
}  # fmt: skip
"""Every option of a prediction but the model, none at its default."""


@pytest.mark.parametrize("cls", REQUESTS)
def test_each_option_has_the_type_of_its_kind_and_stands_in_a_panel(cls: type[Request]) -> None:
    hints = get_type_hints(cls)
    for each in options(cls):
        assert each.text.strip().endswith((".", "?", "...")), each.name
        assert each.panel in ("", *PANELS)
        kinds = get_args(hints[each.name]) if isinstance(hints[each.name], UnionType) else (hints[each.name],)
        plain = [kind for kind in kinds if kind is not type(None)]
        assert len(plain) == 1
        assert (type(None) in kinds) == (each.default is None and not each.is_required), each.name
        if each.kind.is_switch:
            assert plain == [bool]
        elif each.kind.many:
            assert get_origin(plain[0]) is tuple


@pytest.mark.parametrize("cls", REQUESTS)
def test_the_common_dozen_are_options(cls: type[Request]) -> None:
    of_the_command_line = {"json", "check", "show", "html", "plot", "save", "explain"}
    assert set(cls.COMMON.split()) <= {each.name for each in options(cls)} | of_the_command_line
    assert len(cls.COMMON.split()) <= 13


def test_every_field_of_a_prediction_may_stand_in_a_workload_file(tmp_path: Path) -> None:
    import yaml

    assert set(EVERYTHING) == {each.name for each in fields(PredictRequest)} - {"model"}
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump({"model": "gpt2", **EVERYTHING}))
    from_file = request_from(PredictRequest, {"model": str(file)})
    assert from_file == request_from(PredictRequest, {"model": "gpt2", **EVERYTHING})
    assert all(getattr(from_file, each.name) != each.default for each in fields(PredictRequest))


def test_what_is_given_wins_over_the_file_which_wins_over_defaults(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("model: resnet18\nbatch: 16\nprecision: bf16\ncompile: true\nstrategy: fsdp\n")
    request = request_from(PredictRequest, {"model": str(file), "on": "t4", "batch": 4, "compile": False})
    assert (request.model, request.batch, request.precision) == ("resnet18", 4, "bf16")
    assert (request.compile, request.strategy, request.storage) == (False, "fsdp", "nvme")


def test_a_workload_file_sets_sizes_and_options_of_the_workload(tmp_path: Path) -> None:
    file = tmp_path / "job.yml"
    file.write_text("model: mnist-cnn\nbatch: 16\nprecision: bf16\noptimizer: sgd\nchannels_last: true\n")
    trained = workload(request_from(TraceRequest, {"model": str(file)}))
    assert (trained.source.kind, trained.sizes.batch) == ("zoo", 16)
    assert trained.source.example(trained.sizes).samples == 16
    assert (trained.options.precision, trained.options.optimizer) == ("bf16", "sgd")
    assert trained.options.channels_last
    given_wins = workload(request_from(TraceRequest, {"model": str(file), "batch": 4, "precision": "fp32"}))
    assert (given_wins.sizes.batch, given_wins.options.precision) == (4, "fp32")


def test_a_server_refuses_user_code_behind_a_workload_file(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("model: net.py:build\n")
    (tmp_path / "net.py").write_text("raise SystemExit('this must never run')\n")
    request = request_from(TraceRequest, {"model": str(tmp_path / "job.yaml")})
    with pytest.raises(InvalidRequest, match="a server never runs model files"):
        workload_of(request, allow_user_code=False)


@pytest.mark.parametrize(
    ("text", "given_options", "kept"),
    [
        ("batch: 4", {"global_batch": 64}, {"batch": None, "global_batch": 64}),
        ("global_batch: 64", {"batch": 4}, {"batch": 4, "global_batch": None}),
        ("steps: 9", {"epochs": 2}, {"steps": None, "epochs": 2}),
        ("epochs: 2", {"steps": 9}, {"steps": 9, "epochs": None}),
        ("target: loss=1\nlog: a.csv", {"steps": 9}, {"steps": 9, "target": None, "log": None}),
        ("target: loss=1\nlog: /a.csv", {"target": "loss=2"}, {"target": "loss=2", "log": Path("/a.csv")}),
        (
            "steps: 9\nepochs_at: [32=1, 64=2]",
            {"steps": 5},
            {"steps": 5, "epochs_at": ((32, 1.0), (64, 2.0))},
        ),
    ],
)
def test_alternatives_of_what_is_given_are_not_taken_from_the_file(
    tmp_path: Path, text: str, given_options: dict[str, Any], kept: dict[str, Any]
) -> None:
    (tmp_path / "job.yaml").write_text(f"model: resnet18\n{text}\n")
    request = request_from(PredictRequest, {"model": str(tmp_path / "job.yaml"), "on": "t4", **given_options})
    assert {name: getattr(request, name) for name in kept} == kept


def test_files_that_a_workload_file_names_are_looked_for_beside_it(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("model: net.py:build\non: lab.yaml\nlog: log.csv\n")
    found = workload_file_values(PredictRequest, file)
    assert found["model"] == f"{tmp_path / 'net.py'}:build"
    assert found["on"] == str(tmp_path / "lab.yaml")
    assert found["log"] == tmp_path / "log.csv"
    file.write_text("model: hf:configs/llama.json\non: t4\n")
    assert workload_file_values(PredictRequest, file)["model"] == f"hf:{tmp_path / 'configs/llama.json'}"


@pytest.mark.parametrize(
    ("cls", "key", "message"),
    [
        (PredictRequest, "deadline", "predict does not read `deadline`, an option of plan"),
        (TraceRequest, "samples", "trace does not read `samples`, an option of predict, plan and guide"),
        (PlanRequest, "on", "plan does not read `on`"),
        (GuideModel, "batch", "guide does not read `batch`"),
    ],
)
def test_keys_that_a_verb_does_not_read_are_errors(
    tmp_path: Path, cls: type[Request], key: str, message: str
) -> None:
    with pytest.raises(InvalidRequest, match=message):
        request_from(cls, {"model": "resnet18", key: 1})
    (tmp_path / "job.yaml").write_text(f"model: resnet18\n{key}: 1\n")
    with pytest.raises(InvalidData, match=message):
        request_from(cls, {"model": str(tmp_path / "job.yaml")})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("batch: 4", "names no model"),
        ("model: 5", "`model` is 5; it must be a model"),
        ("- resnet50", "key: value"),
        ("", "key: value"),
        ("model: [", "is not YAML"),
        ("model: resnet50\nbatch: 0", "at least 1"),
        ("model: resnet50\nbatch: 2.5", "whole number"),
        ("model: resnet50\nbatch: yes", "whole number"),
        ("model: resnet50\nprecision: fp12", "one of fp32, tf32"),
        ("model: resnet50\ncompile: maybe", "true or false"),
        ("model: resnet50\noptimizer: 3", "must be one of sgd, momentum"),
        ("model: resnet50\nepoch: 3", "no field 'epoch'; did you mean epochs"),
        ("model: job.yaml", "names another workload file"),
    ],
)
def test_what_a_workload_file_may_not_contain(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "job.yaml").write_text(text)
    with pytest.raises(InvalidData, match=message):
        workload_file_values(PredictRequest, tmp_path / "job.yaml")


def test_a_workload_file_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(MissingData, match=r"the workload file '.*none.yaml' does not exist"):
        request_from(PredictRequest, {"model": str(tmp_path / "none.yaml"), "on": "t4"})


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused_with_a_sentence(text: str) -> None:
    try:
        mapping = parse_mapping(text, Path("job.yaml"), "model: resnet50")
        assert isinstance(values(PredictRequest, mapping, Path("job.yaml")), dict)
    except ForetrainError as error:
        assert str(error)
