"""What makes each transformer that transformer, on models small enough to run."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from foretrain.workloads.example import Example
from foretrain.workloads.zoo import AttentionKind, BuildOptions, Sizes, build
from foretrain.workloads.zoo.encoder_decoders import (
    RelativeBias,
    SwitchFeedForward,
    T5Config,
    switch,
    t5,
    transformer,
)
from foretrain.workloads.zoo.layers import (
    Attention,
    ComposedGelu,
    SparseSwiGLU,
    causal_bias,
    rotary_angles,
    rotate,
)
from foretrain.workloads.zoo.transformers import bert, gpt, llama, vit

VOCABULARY = 11
SMALL: dict[str, Any] = {"layers": 2, "width": 16, "heads": 4, "hidden": 24, "vocabulary": VOCABULARY}
SMALL_T5: dict[str, Any] = {**SMALL, "head_width": 8, "buckets": 8, "furthest": 16}
PATCHES = {"patch": 4, "layers": 2, "width": 16, "heads": 4, "hidden": 24, "classes": VOCABULARY}

BUILDERS: dict[str, tuple[Any, dict[str, Any]]] = {
    "gpt": (gpt, SMALL),
    "llama": (llama, {**SMALL, "kv_heads": 2}),
    "qwen": (llama, {**SMALL, "kv_heads": 2, "qkv_bias": True, "head_norm": True}),
    "mixtral": (llama, {**SMALL, "kv_heads": 2, "experts": 4, "experts_per_token": 2}),
    "gemma": (llama, {**SMALL, "kv_heads": 2, "head_width": 6, "tied": True, "gemma": True}),
    "bert": (bert, SMALL),
    "bert-classifier": (bert, {**SMALL, "classes": 3}),
    "t5": (t5, SMALL_T5),
    "switch": (switch, {**SMALL_T5, "experts": 3, "capacity": 4}),
    "transformer": (transformer, {**SMALL, "dropout": 0.1}),
    "vit": (vit, PATCHES),
}


def small(family: str, attention: AttentionKind = "sdpa") -> Example:
    builder, config = BUILDERS[family]
    torch.manual_seed(0)
    example: Example = builder(Sizes(batch=2, seq_len=8, image_size=16, attention=attention), **config)
    return example


def logits(example: Example, *inputs: Tensor) -> Tensor:
    """The module's logits without dropout."""
    output = example.module.eval()(*inputs)
    answer: Tensor = output[0] if isinstance(output, tuple) else output
    return answer


@pytest.mark.parametrize("family", BUILDERS)
def test_a_small_one_trains_for_real(family: str) -> None:
    example = small(family)
    loss = example.forward()
    torch.autograd.backward(loss)
    assert torch.isfinite(loss)
    assert all(weight.grad is not None for weight in example.module.parameters())


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("family", BUILDERS)
def test_a_small_one_trains_in_half_precision(family: str, attention: AttentionKind) -> None:
    """Both ways of it: all weights in bfloat16, and autocast."""
    example = small(family, attention)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.autograd.backward(example.forward())
    example.module.to(torch.bfloat16)
    inputs = [x.to(torch.bfloat16) if x.is_floating_point() else x for x in example.inputs]
    assert logits(example, *inputs).dtype == torch.bfloat16


@pytest.mark.parametrize("family", BUILDERS)
def test_eager_and_fused_attention_agree(family: str) -> None:
    eager, fused, flash = (small(family, kind) for kind in ("eager", "sdpa", "flash"))
    expected = logits(eager, *eager.inputs)
    torch.testing.assert_close(logits(fused, *eager.inputs), expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(logits(flash, *eager.inputs), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "name", ["gpt2", "llama3.2-1b", "bert-base", "t5-small", "transformer-base", "vit-b-16"]
)
def test_eager_attention_runs_on_the_meta_device(name: str) -> None:
    with torch.device("meta"):
        torch.autograd.backward(build(name, BuildOptions(batch=1, attention="eager")).forward())


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("family", ["gpt", "llama", "qwen", "gemma", "t5", "transformer"])
def test_a_decoder_does_not_see_the_future(family: str, attention: AttentionKind) -> None:
    example = small(family, attention)
    *before, ids = example.inputs
    changed = ids.clone()
    changed[:, -1] = (ids[:, -1] + 1) % VOCABULARY
    first, second = logits(example, *before, ids), logits(example, *before, changed)
    torch.testing.assert_close(first[:, :-1], second[:, :-1])
    assert not torch.allclose(first[:, -1], second[:, -1])


def test_a_bert_classifier_reads_the_first_token_and_has_no_decoder() -> None:
    example = small("bert-classifier")
    assert logits(example, *example.inputs).shape == (2, 3)
    names = {name for name, _ in example.module.named_parameters()}
    assert not any(name.startswith(("transform", "decoder")) for name in names)


def test_bert_sees_both_directions() -> None:
    example = small("bert")
    (ids,) = example.inputs
    changed = ids.clone()
    changed[:, -1] = (ids[:, -1] + 1) % VOCABULARY
    assert not torch.allclose(logits(example, ids)[:, 0], logits(example, changed)[:, 0])


@pytest.mark.parametrize("family", ["t5", "transformer"])
def test_a_decoder_reads_the_source(family: str) -> None:
    example = small(family)
    source, target = example.inputs
    other = (source + 1) % VOCABULARY
    assert not torch.allclose(logits(example, source, target), logits(example, other, target))


def test_experts_share_the_tokens() -> None:
    """Two of four experts for each of eight tokens: sixteen places, four for every expert."""
    layer = SparseSwiGLU(2, 3, experts=4, per_token=2)
    seen: list[int] = []
    for expert in layer.experts:
        expert.register_forward_hook(lambda _, inputs, __: seen.append(inputs[0].size(1)))
    assert layer(torch.rand(1, 8, 2)).shape == (1, 8, 2)
    assert seen == [4, 4, 4, 4]


def test_one_expert_for_every_token_is_a_plain_network() -> None:
    layer = SparseSwiGLU(2, 3, experts=1, per_token=1)
    x = torch.rand(1, 4, 2)
    torch.testing.assert_close(layer(x), layer.experts[0](x))


def test_attention_by_hand() -> None:
    """With zero queries every key has the same weight, so the output is the mean of the values so far."""
    attention = Attention(2, 1, kind="eager", causal=True)
    with torch.no_grad():
        for layer, weight in ((attention.query, 0.0), (attention.key, 1.0), (attention.value, 1.0)):
            layer.weight.copy_(weight * torch.eye(2))
            layer.bias.zero_()
        attention.output.weight.copy_(torch.eye(2))
        attention.output.bias.zero_()
    x = torch.tensor([[[2.0, 0.0], [4.0, 6.0]]])
    torch.testing.assert_close(attention(x), torch.tensor([[[2.0, 0.0], [3.0, 3.0]]]))


def test_the_causal_bias_hides_what_comes_later() -> None:
    hidden = float("-inf")
    expected = torch.tensor([[0.0, hidden, hidden], [0.0, 0.0, hidden], [0.0, 0.0, 0.0]])
    assert torch.equal(causal_bias(torch.empty(2, 3, 3)), expected)


def test_rotary_positions_turn_by_the_distance_and_keep_the_length() -> None:
    x = torch.randn(1, 1, 1, 4).expand(1, 1, 6, 4)
    turned = rotate(x, rotary_angles(6, 4, 10_000.0, like=x))
    torch.testing.assert_close(turned[0, 0, 0], x[0, 0, 0])
    torch.testing.assert_close(turned.norm(dim=-1), x.norm(dim=-1))
    products = turned[0, 0] @ turned[0, 0].T
    torch.testing.assert_close(products[0, 2], products[3, 5])


def test_the_composed_gelu_is_the_tanh_gelu() -> None:
    x = torch.linspace(-4, 4, 33)
    torch.testing.assert_close(ComposedGelu()(x), torch.nn.functional.gelu(x, approximate="tanh"))


@pytest.mark.parametrize(
    ("causal", "distance", "bucket"),
    [
        # both ways: 16 buckets each; 8 exact, then up to 128 by the logarithm
        (False, 0, 0), (False, -1, 1), (False, 1, 17), (False, -7, 7), (False, -8, 8), (False, -32, 12),
        (False, -127, 15), (False, -500, 15), (False, 500, 31),
        # one way: 16 exact; 45 is 16·8^(1/2), half of the way
        (True, 0, 0), (True, -15, 15), (True, -16, 16), (True, -46, 24), (True, -500, 31), (True, 3, 0),
    ],
)  # fmt: skip
def test_relative_position_buckets(causal: bool, distance: int, bucket: int) -> None:
    bias = RelativeBias(T5Config(layers=1, width=8, hidden=8, heads=1), causal=causal)
    assert bias._bucket(torch.tensor([distance])).item() == bucket


def experts(count: int, capacity: int) -> SwitchFeedForward:
    torch.manual_seed(0)
    config = T5Config(layers=1, width=4, hidden=8, heads=1, dropout=0.0)
    return SwitchFeedForward(config, count, capacity)


def test_one_expert_with_room_for_all_is_a_dense_layer() -> None:
    layer, x = experts(1, capacity=5), torch.randn(2, 5, 4)
    torch.testing.assert_close(layer(x), layer.experts[0](x))
    assert layer.balance is not None
    assert layer.balance.item() == pytest.approx(1)


def test_tokens_beyond_the_capacity_of_their_expert_skip_it() -> None:
    layer, x = experts(2, capacity=3), torch.randn(2, 5, 4)
    with torch.no_grad():
        layer.router.weight.zero_()  # equal scores: the first expert takes every token, with weight 1/2
    output = layer(x)
    torch.testing.assert_close(output[:, :3], layer.experts[0](x)[:, :3] / 2)
    assert torch.count_nonzero(output[:, 3:]) == 0


def test_each_token_goes_to_the_expert_its_router_prefers() -> None:
    layer, x = experts(3, capacity=6), torch.randn(2, 6, 4)
    probability = layer.router(x).softmax(dim=-1)
    answers = torch.stack([expert(x) for expert in layer.experts], dim=2)
    trust, expert = probability.max(dim=-1)
    chosen = answers.gather(2, expert[..., None, None].expand(-1, -1, 1, 4)).squeeze(2)
    torch.testing.assert_close(layer(x), chosen * trust.unsqueeze(-1))


def test_an_opt_with_embeddings_of_another_width() -> None:
    """The one-layer OPT that NeuSight measured: embeddings of 2048 in a model of width 512."""
    with torch.device("meta"):
        example = gpt(
            Sizes(batch=1, seq_len=8), layers=1, width=512, heads=8, hidden=2048, vocabulary=50272,
            positions=2048, unused_positions=2, embedding_width=2048, activation="relu", fused_qkv=False,
        )  # fmt: skip
        torch.autograd.backward(example.forward())
    block = 4 * 512 * 513 + 2048 * 513 + 512 * 2049 + 4 * 512
    expected = 50272 * 2048 + 2050 * 512 + 2 * 512 * 2048 + block + 2 * 512
    assert sum(weight.numel() for weight in example.module.parameters()) == expected
