"""Sliding windows of attention: what fused kernels compute is counted pair by pair."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from foretrain.workloads.graph import NO_TENSOR, Graph
from foretrain.workloads.ops import Kind, Work, keys_per_query
from foretrain.workloads.options import ResolvedOptions
from foretrain.workloads.readers import read_model
from foretrain.workloads.rules import operators
from foretrain.workloads.tracing.fused import attend_in_window, window_mask
from foretrain.workloads.workload import Workload, graph_of
from foretrain.workloads.zoo import BuildOptions, Sizes, zoo
from foretrain.workloads.zoo.transformers import llama

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


def attention_works(graph: Graph) -> list[Work]:
    return [op.work for op in operators(graph) if op.work.kind is Kind.ATTENTION]


def test_pairs_within_a_window_are_counted_by_hand() -> None:
    """Of 6 tokens and a window of 3 the queries see 1, 2, 3, 3, 3 and 3 keys."""
    assert 6 * keys_per_query(6, causal=True, window=3) == pytest.approx(1 + 2 + 3 + 3 + 3 + 3)
    # To both sides, with one key before and one behind: 2, 3, 3, 3, 2
    assert 5 * keys_per_query(5, causal=False, window=3) == pytest.approx(2 + 3 + 3 + 3 + 2)
    assert keys_per_query(6, causal=True) == keys_per_query(6, causal=True, window=6) == 3
    assert keys_per_query(6, causal=False) == 6


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("side", [1, 2, 5, 9])
def test_pairs_are_those_of_the_mask(side: int, causal: bool) -> None:
    tokens = torch.empty(1, 1, 20, 4)
    pairs = int(window_mask(tokens, tokens, side, causal).sum())
    window = side if causal else 2 * side - 1
    assert 20 * keys_per_query(20, causal, window) == pytest.approx(pairs)


def test_a_window_attends_to_its_keys_only() -> None:
    """The last of 5 tokens, with a window of 2, is a mean of its own value and the one before."""
    generator = torch.Generator().manual_seed(0)
    query, value = torch.zeros(1, 1, 5, 4), torch.rand(1, 1, 5, 4, generator=generator)
    attended = attend_in_window(query, query, value, window=2)
    assert torch.allclose(attended[0, 0, 4], value[0, 0, 3:].mean(dim=0))
    assert torch.allclose(attended[0, 0, 0], value[0, 0, 0])


@pytest.mark.parametrize(
    ("model", "window", "every"), [("mistral-7b", 4096, 0), ("gemma2-2b", 4096, 2), ("gemma3-1b", 512, 6)]
)
def test_models_of_the_zoo_skip_what_is_beyond_their_windows(model: str, window: int, every: int) -> None:
    """Each `every`-th layer attends to all tokens."""
    entry, length = zoo()[model], 2 * window
    depth = every or 2
    source = read_model(model).with_blocks(depth)
    work = Workload(source, BuildOptions(batch=2, seq_len=length), ResolvedOptions(precision="bf16"))
    forward, *_ = attention_works(graph_of(work))
    heads, head = entry.config["heads"], forward.dims["head"]
    pairs = window * (window + 1) // 2 + (length - window) * window
    assert forward.dims["window"] == window
    assert forward.flop == pytest.approx(2 * 2 * 2 * heads * head * pairs)
    windows = [each.dims.get("window") for each in attention_works(graph_of(work))[:depth]]
    assert windows == [None if every and layer == every else window for layer in range(1, depth + 1)]


def test_a_window_as_long_as_the_sample_changes_nothing() -> None:
    whole, windowed = (
        attention_works(
            graph_of(
                Workload(
                    read_model(name).with_blocks(2),
                    BuildOptions(batch=2, seq_len=4096),
                    ResolvedOptions(precision="bf16"),
                )
            )
        )
        for name in ("mistral-7b-v0.3", "mistral-7b")
    )
    assert whole == windowed


def test_a_real_step_with_a_window_runs() -> None:
    """The same module computes values on a CPU, by PyTorch's function with a mask."""
    config: dict[str, Any] = {
        "layers": 2, "width": 16, "hidden": 16, "heads": 2, "kv_heads": 1, "vocabulary": 11, "window": 3,
    }  # fmt: skip
    losses = []
    for kind in ("sdpa", "eager"):
        torch.manual_seed(1)
        losses.append(llama(Sizes(2, 8, attention=kind), **config).forward())
    assert torch.allclose(losses[0], losses[1], rtol=1e-5)


TEXT: dict[str, Any] = {
        "num_hidden_layers": 2, "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32,
        "vocab_size": 50, "max_position_embeddings": 64, "num_key_value_heads": 1, "head_dim": 8,
        "sliding_window": 4}  # fmt: skip
WINDOWED: dict[str, dict[str, Any]] = {
    "mistral": {"architectures": ["MistralForCausalLM"]},
    "gemma2": {"architectures": ["Gemma2ForCausalLM"]},
    "gemma3_text": {"architectures": ["Gemma3ForCausalLM"]},
    "gpt_oss": {"architectures": ["GptOssForCausalLM"], "num_local_experts": 4, "num_experts_per_tok": 2},
}


@pytest.mark.parametrize("model_type", WINDOWED)
def test_flash_attention_of_transformers_takes_the_window(model_type: str, tmp_path: Path) -> None:
    """A window of 4 in 16 tokens leaves 1 + 2 + 3 + 13 · 4 pairs, and no mask is read."""
    (tmp_path / "config.json").write_text(
        json.dumps({"model_type": model_type, **TEXT, **WINDOWED[model_type]})
    )
    options = ResolvedOptions(precision="bf16", attention="flash")
    sizes = BuildOptions(batch=2, seq_len=16, attention="flash")
    graph = graph_of(Workload(read_model(f"hf:{tmp_path}"), sizes, options))
    calls = [call for call in graph.calls if call.name == "foretrain.attention"]
    assert calls and all(call.inputs[3] == NO_TENSOR for call in calls)
    assert not any(call.name == "aten.bmm" and "attn" in call.module for call in graph.calls)
    first = attention_works(graph)[0]
    assert first.dims["window"] == 4
    assert first.flop == pytest.approx(2 * 2 * 2 * 2 * 8 * (1 + 2 + 3 + 13 * 4))


def test_pytorchs_own_attention_has_a_mask_for_a_window_and_computes_all_pairs(tmp_path: Path) -> None:
    """As transformers calls it: no kernel of PyTorch skips what a mask of values leaves out."""
    config = {"model_type": "mistral", **TEXT, **WINDOWED["mistral"]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    options = ResolvedOptions(precision="bf16")
    graph = graph_of(Workload(read_model(f"hf:{tmp_path}"), BuildOptions(batch=2, seq_len=16), options))
    first = attention_works(graph)[0]
    assert "window" not in first.dims
    assert first.flop == 2 * 2 * 2 * 2 * 8 * 16 * 16
