"""Hugging Face configurations: every task, every way to be wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from foretrain.errors import InvalidData, InvalidRequest, MissingData, UnknownName
from foretrain.workloads.graph import Graph, Role
from foretrain.workloads.options import ResolvedOptions
from foretrain.workloads.readers import ModelSource, read_model
from foretrain.workloads.rules import operators, unknown_names
from foretrain.workloads.tracing.step import trace
from foretrain.workloads.workload import Workload, record_workload, trace_workload
from foretrain.workloads.workload import graph_of as graph_of_workload
from foretrain.workloads.zoo import BuildOptions, EqualBlocks

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")

ENCODER = {"num_hidden_layers": 2, "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32}
LLAMA = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 50,
         "max_position_embeddings": 64, "num_key_value_heads": 1, **ENCODER}  # fmt: skip
BERT = {"model_type": "bert", "vocab_size": 50, "max_position_embeddings": 64, **ENCODER}
T5 = {"model_type": "t5", "architectures": ["T5ForConditionalGeneration"], "vocab_size": 50, "d_model": 16,
      "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2}  # fmt: skip
VIT = {"model_type": "vit", "architectures": ["ViTForImageClassification"], "image_size": 32, "patch_size": 8,
       **ENCODER}  # fmt: skip


def source_of(folder: Path, config: Any) -> ModelSource:
    (folder / "config.json").write_text(json.dumps(config))
    return read_model(f"hf:{folder}")


def graph_of(folder: Path, config: Any, **sizes: Any) -> Graph:
    options = BuildOptions(**{"batch": 2, **sizes})
    graph = trace(source_of(folder, config).example(options), ResolvedOptions(precision="bf16"))
    assert unknown_names(operators(graph)) == ()
    return graph


def test_a_causal_language_model(tmp_path: Path) -> None:
    graph = graph_of(tmp_path, LLAMA, seq_len=8)
    attention = 16 * 16 + 2 * 16 * 8 + 16 * 16  # queries, one head of keys and of values, output
    layer = attention + 3 * 16 * 32 + 2 * 16  # and the gated feed-forward, and two norms
    assert graph.parameters == 2 * 50 * 16 + 2 * layer + 16
    assert (graph.samples, graph.tokens) == (2, 16)
    causal = [call for call in graph.calls if call.name == "foretrain.attention"]
    assert [call.settings["causal"] for call in causal] == [True, True]


@pytest.mark.parametrize(
    "model_type",
    ["bert", "gemma", "gpt2", "gpt_neox", "llama", "mistral", "mixtral", "opt", "phi", "phi3", "qwen2",
     "qwen3", "roberta", "vit"],
)  # fmt: skip
def test_equal_layers_are_derived_from_a_few(tmp_path: Path, model_type: str) -> None:
    experts = {"num_local_experts": 4, "num_experts_per_tok": 2} if model_type == "mixtral" else {}
    counts = {"n_layer": 16, "n_embd": 16, "n_head": 2} if model_type == "gpt2" else {"num_hidden_layers": 16}
    base = VIT if model_type == "vit" else LLAMA | {"pad_token_id": 0, "head_dim": 8, "architectures": None}
    config = {**base, **experts, **counts, "model_type": model_type}
    sizes = BuildOptions(batch=2) if model_type == "vit" else BuildOptions(batch=2, seq_len=8)
    workload = Workload(source_of(tmp_path, config), sizes, ResolvedOptions(precision="bf16"))
    derived, traced = record_workload(workload), trace_workload(workload)
    assert derived.repeats is not None
    assert derived == traced


def test_layers_of_several_kinds_are_not_equal(tmp_path: Path) -> None:
    kinds = ["sliding_attention", "full_attention"] * 8
    equal = {**LLAMA, "num_hidden_layers": 16}
    assert source_of(tmp_path, {**equal, "layer_types": kinds}).blocks is None
    windows = {"model_type": "qwen2", "architectures": None, "use_sliding_window": True}
    assert source_of(tmp_path, {**equal, **windows}).blocks is None
    same = source_of(tmp_path, {**equal, "layer_types": ["full_attention"] * 16})
    assert same.blocks == EqualBlocks(16)
    assert same.with_blocks(4).blocks == EqualBlocks(4)


def test_eager_attention_is_not_fused(tmp_path: Path) -> None:
    graph = graph_of(tmp_path, LLAMA, seq_len=8, attention="eager")
    assert not any(call.name == "foretrain.attention" for call in graph.calls)


@pytest.mark.parametrize("architecture", ["BertForMaskedLM", "BertForSequenceClassification"])
def test_bert_by_task(tmp_path: Path, architecture: str) -> None:
    graph = graph_of(tmp_path, {**BERT, "architectures": [architecture]}, seq_len=8)
    assert graph.tokens == 16
    assert sum(call.name == "foretrain.attention" for call in graph.calls) == 2


@pytest.mark.parametrize("config", [LLAMA, {**BERT, "architectures": ["BertForMaskedLM"]}, T5, VIT])
def test_weights_in_half_precision(tmp_path: Path, config: Any) -> None:
    source = source_of(tmp_path, config)
    mixed, half = (
        trace(
            source.example(BuildOptions(batch=2)),
            ResolvedOptions(precision="bf16", weights=weights, master_weights=weights == "bf16"),
        )
        for weights in ("fp32", "bf16")
    )
    for role in (Role.PARAMETER, Role.GRADIENT):
        assert {half.specs[buffer.spec].dtype for buffer in half.buffers if buffer.role is role} == {
            "bfloat16"
        }
        assert 2 * _bytes(half, role) == _bytes(mixed, role) > 0


def _bytes(graph: Graph, role: Role) -> int:
    return sum(graph.specs[buffer.spec].bytes for buffer in graph.buffers if buffer.role is role)


def test_an_encoder_decoder_counts_the_tokens_of_both_sides(tmp_path: Path) -> None:
    graph = graph_of(tmp_path, T5, seq_len=8)
    assert graph.tokens == 2 * 8 + 2 * 8
    assert sum(call.name == "foretrain.attention" for call in graph.calls) == 2 + 2 * 2


def test_an_image_classifier_at_another_size(tmp_path: Path) -> None:
    example = source_of(tmp_path, VIT).example(BuildOptions(batch=3, image_size=64))
    assert example.inputs[0].shape == (3, 3, 64, 64)
    assert trace(example, ResolvedOptions()).tokens == 0


def test_experts_are_grouped_products_that_cost_as_much_as_the_tokens_routed(tmp_path: Path) -> None:
    experts = {"num_local_experts": 4, "num_experts_per_tok": 2}
    mixtral = {**LLAMA, "model_type": "mixtral", "architectures": ["MixtralForCausalLM"], **experts}
    graph = graph_of(tmp_path, mixtral, seq_len=8)
    grouped = [op.work for op in operators(graph) if op.name == "aten._grouped_mm"]
    rows = 2 * 8 * 2  # tokens, each to two experts
    assert [work.flop for work in grouped[:2]] == [2 * rows * 16 * 64, 2 * rows * 32 * 16]
    assert len(grouped) == 2 * 2 * 3  # two products in each of two layers, and two gradients of each
    assert {work.dims["groups"] for work in grouped} == {4}


def test_fp8_of_experts_is_the_framework_s(tmp_path: Path) -> None:
    """Transformer Engine multiplies experts in FP8, plain PyTorch in BF16."""
    experts = {"num_local_experts": 4, "num_experts_per_tok": 2}
    mixtral = {**LLAMA, "model_type": "mixtral", "architectures": ["MixtralForCausalLM"], **experts}
    example = source_of(tmp_path, mixtral).example(BuildOptions(seq_len=8))
    for framework, dtype in (("pytorch", "bfloat16"), ("megatron", "float8_e4m3fn")):
        options = ResolvedOptions(precision="fp8", weights="bf16", master_weights=True, framework=framework)
        ops = operators(trace(example, options))
        assert {op.work.dtype for op in ops if op.work.dims.get("groups")} == {dtype}


def test_a_named_kernel_fuses_attention_that_pytorch_cannot(tmp_path: Path) -> None:
    """PyTorch has no kernel for attention with sinks (eager there), cuDNN has: no score matrix is stored."""
    sinks = {**LLAMA, "model_type": "gpt_oss", "architectures": ["GptOssForCausalLM"], "head_dim": 8,
             "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 4}  # fmt: skip
    source = source_of(tmp_path, sinks)
    names = {}
    for attention in ("sdpa", "cudnn"):
        options = ResolvedOptions(precision="bf16", attention=attention)
        work = Workload(source, BuildOptions(batch=2, seq_len=8, attention=attention), options)
        graph = graph_of_workload(work)
        names[attention] = [call.name for call in graph.calls]
        kernels = {call.settings["algorithm"] for call in graph.calls if call.name == "foretrain.attention"}
        assert kernels == ({"cudnn"} if attention == "cudnn" else set())
    assert "aten.bmm" in names["sdpa"] and "aten.bmm" not in names["cudnn"]


def test_without_an_architecture_the_type_decides(tmp_path: Path) -> None:
    assert (
        graph_of(tmp_path, BERT, seq_len=8).parameters
        == graph_of(tmp_path, {**BERT, "architectures": ["BertForMaskedLM"]}, seq_len=8).parameters
    )


def test_a_file_and_its_folder_are_one_model(tmp_path: Path) -> None:
    source = source_of(tmp_path, LLAMA)
    assert read_model(f"hf:{tmp_path / 'config.json'}").fingerprint() == source.fingerprint()
    other = source_of(tmp_path, {**LLAMA, "vocab_size": 51})
    assert other.fingerprint() != source.fingerprint()


def test_the_error_of_an_unknown_model_type_names_near_ones(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match=r"did you mean .*llama"):
        source_of(tmp_path, {**LLAMA, "model_type": "lama"})


def test_the_error_of_an_unknown_architecture_names_those_of_its_type(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="LlamaForCausalLM"):
        source_of(tmp_path, {**LLAMA, "architectures": ["LlamaForCausalLLM"]})


@pytest.mark.parametrize("architecture", ["BertModel", "BertForPreTraining"])
def test_an_architecture_without_a_loss_here_is_trained_as_its_type_is(
    tmp_path: Path, architecture: str
) -> None:
    example = source_of(tmp_path, {**BERT, "architectures": [architecture]}).example(BuildOptions(batch=2))
    assert example.notes == (f"{architecture} has no loss of its own here: it is trained as BertForMaskedLM",)
    assert trace(example, ResolvedOptions()).notes == example.notes


def test_code_of_its_own_is_never_run(tmp_path: Path) -> None:
    (tmp_path / "modeling.py").write_text("raise SystemExit('this must never run')\n")
    own = {"auto_map": {"AutoModelForCausalLM": "modeling.Model"}}
    for other in ({"model_type": "my_llama"}, {"architectures": ["MyLlama"]}):
        with pytest.raises(InvalidRequest, match="never run"):
            source_of(tmp_path, {**LLAMA, **own, **other})
    with_class_of_transformers = graph_of(tmp_path, {**LLAMA, **own}, seq_len=8)
    assert with_class_of_transformers.parameters == graph_of(tmp_path, LLAMA, seq_len=8).parameters


def cached(folder: Path, config: Any, revision: str = "abc", is_main: bool = True) -> None:
    model = folder / "models--meta-llama--Llama-3.1-8B"
    (model / "snapshots" / revision).mkdir(parents=True)
    (model / "snapshots" / revision / "config.json").write_text(json.dumps(config))
    if is_main:
        (model / "refs").mkdir()
        (model / "refs" / "main").write_text(revision)


@pytest.mark.parametrize("variable", ["HF_HUB_CACHE", "HF_HOME"])
def test_a_model_of_the_hub_is_read_from_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    monkeypatch.setenv(variable, str(tmp_path))
    folder = tmp_path / "hub" if variable == "HF_HOME" else tmp_path
    cached(folder, {**LLAMA, "vocab_size": 60}, revision="aaa", is_main=False)
    cached(folder, LLAMA, revision="bbb")
    source = read_model("hf:meta-llama/Llama-3.1-8B")
    assert source.name == "hf:meta-llama/Llama-3.1-8B"
    assert source.fingerprint() == source_of(tmp_path, LLAMA).fingerprint()


def test_a_model_that_is_not_cached_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(MissingData, match=r"hf download meta-llama/Llama-3\.1-8B config\.json"):
        read_model("hf:meta-llama/Llama-3.1-8B")


def test_quantised_weights_cannot_be_trained(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="quantization_config"):
        source_of(tmp_path, {**LLAMA, "quantization_config": {"bits": 4}})


def test_a_type_that_is_for_none_of_the_tasks(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="are for none of"):
        source_of(tmp_path, {"model_type": "vits"})


@pytest.mark.parametrize(
    ("text", "message"), [("{", "is not JSON"), ("[]", "model_type"), ("{}", "model_type")]
)
def test_what_is_no_configuration(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(InvalidData, match=message):
        read_model(f"hf:{tmp_path}")


def test_a_folder_without_a_configuration(tmp_path: Path) -> None:
    with pytest.raises(MissingData, match="does not exist"):
        read_model(f"hf:{tmp_path}")


@pytest.mark.parametrize(
    ("key", "value"),
    [("hidden_size", -16), ("hidden_size", "wide"), ("vocab_size", 0), ("num_hidden_layers", -2)],
)
def test_what_counts_must_be_a_whole_number_of_at_least_one(tmp_path: Path, key: str, value: object) -> None:
    with pytest.raises(InvalidData, match=f"{key} must be a whole number of at least 1, got {value!r}"):
        source_of(tmp_path, {**LLAMA, key: value})


def test_sizes_that_contradict_each_other(tmp_path: Path) -> None:
    source = source_of(tmp_path, {**LLAMA, "hidden_size": 64, "num_attention_heads": 5})
    with pytest.raises(InvalidData, match=r"not a multiple of the number of attention heads"):
        source.example(BuildOptions())


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"seq_len": 65}, "from 1 to 64"),
        ({"batch": 0}, "at least 1"),
        ({"image_size": 32}, "has no image_size"),
    ],
)
def test_sizes_the_model_cannot_take(tmp_path: Path, sizes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        source_of(tmp_path, LLAMA).example(BuildOptions(**sizes))
