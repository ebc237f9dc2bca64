"""LoRA and QLoRA: what is trained, what is kept, what it costs."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from foretrain.errors import ForetrainError, InvalidRequest, UnknownName
from foretrain.prediction.memory.lifetimes import saved_bytes
from foretrain.workloads.example import Example
from foretrain.workloads.graph import Graph, Phase, Role
from foretrain.workloads.lora import LoraOptions, apply_lora, format_lora, parse_lora
from foretrain.workloads.lora_layers import DoraLinear, FourBitLinear, FourBitStack, LoraLinear
from foretrain.workloads.options import ResolvedOptions
from foretrain.workloads.readers import read_model
from foretrain.workloads.rules import operators, unknown_names
from foretrain.workloads.tracing.step import trace
from foretrain.workloads.workload import Workload, trace_workload
from foretrain.workloads.zoo import BuildOptions, build

WIDTH, CLASSES = 128, 5


class Net(nn.Module):
    """Two projections of usual names, and an output layer."""

    def __init__(self) -> None:
        super().__init__()
        self.q_proj = nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Linear(WIDTH, WIDTH, bias=False)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(self.mlp(self.q_proj(x)))
        return result


def graph_of(options: LoraOptions, precision: str = "fp32", weights: str = "fp32") -> Graph:
    with torch.device("meta"):
        module, inputs = Net(), torch.rand(4, WIDTH)
    return trace(
        Example(apply_lora(module, options), (inputs,), torch.sum, samples=4),
        ResolvedOptions(precision=precision, weights=weights),
    )


def test_only_the_small_matrices_are_trained() -> None:
    graph = graph_of(LoraOptions(rank=8))
    frozen = WIDTH * WIDTH + WIDTH + WIDTH * WIDTH + WIDTH * CLASSES + CLASSES
    assert graph.trainable_parameters == 2 * 8 * WIDTH
    assert graph.parameters == frozen + 2 * 8 * WIDTH
    gradients = [buffer for buffer in graph.buffers if buffer.role is Role.GRADIENT]
    assert sum(graph.specs[buffer.spec].elements for buffer in gradients) == 2 * 8 * WIDTH


def test_targets_by_name_and_all_linears_where_no_usual_name_is_found() -> None:
    assert graph_of(LoraOptions(4, ("mlp", "q_proj"))).trainable_parameters == 2 * 2 * 4 * WIDTH
    plain = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 5))
    apply_lora(plain, LoraOptions(2))
    assert sum(p.numel() for p in plain.parameters() if p.requires_grad) == 2 * (3 + 4) + 2 * (4 + 5)


def test_names_of_other_models_and_all_linear_layers() -> None:
    names = ("query", "key", "value", "output")
    assert _adapted(nn.ModuleDict({name: nn.Linear(4, 4) for name in names})) == ["query", "value"]
    zoo = nn.ModuleDict({name: nn.Linear(4, 4) for name in names})
    assert _adapted(zoo, "q_proj", "o_proj") == ["query", "output"]
    assert _adapted(Net(), "all-linear") == ["q_proj", "mlp"]


def _adapted(module: nn.Module, *targets: str) -> list[str]:
    apply_lora(module, LoraOptions(2, targets))
    return [name for name, layer in module.named_modules() if isinstance(layer, LoraLinear)]


def test_a_frozen_base_in_half_precision_has_adapters_in_full_precision() -> None:
    graph = graph_of(LoraOptions(rank=8), "bf16", "bf16")
    sizes = {
        buffer.name: graph.specs[buffer.spec].bytes
        for buffer in graph.buffers
        if buffer.role is Role.PARAMETER
    }
    assert sizes["q_proj.base.weight"] == 2 * WIDTH * WIDTH
    assert sizes["q_proj.down.weight"] == 4 * 8 * WIDTH
    state = sum(
        graph.specs[buffer.spec].elements for buffer in graph.buffers if buffer.role is Role.OPTIMIZER_STATE
    )
    assert state >= 2 * 2 * 8 * WIDTH  # two moments of two matrices; nothing of the base


def test_the_output_is_that_of_the_formula() -> None:
    layer = nn.Linear(3, 4)
    net = apply_lora(nn.Sequential(layer), LoraOptions(2))
    adapted = net[0]  # type: ignore[index]
    assert isinstance(adapted, LoraLinear)
    x = torch.rand(5, 3)
    expected = x @ layer.weight.T + layer.bias + x @ adapted.down.weight.T @ adapted.up.weight.T
    assert torch.allclose(net(x), expected, atol=1e-6)


def test_dora_has_rows_of_the_trained_length() -> None:
    layer = nn.Linear(3, 4)
    adapted = apply_lora(nn.Sequential(layer), LoraOptions(2, dora=True))[0]  # type: ignore[index]
    assert isinstance(adapted, DoraLinear)
    nn.init.uniform_(adapted.magnitude)
    weight = layer.weight + adapted.up.weight @ adapted.down.weight
    rows = weight / weight.norm(dim=1, keepdim=True) * adapted.magnitude[:, None]
    x = torch.rand(5, 3)
    assert torch.allclose(adapted(x), x @ rows.T + layer.bias, atol=1e-6)


@pytest.mark.parametrize("quantised", [False, True])
def test_dora_trains_one_more_number_for_each_output(quantised: bool) -> None:
    graph = graph_of(LoraOptions(8, quantised=quantised, dora=True), "bf16", "bf16")
    assert graph.trainable_parameters == 2 * 8 * WIDTH + WIDTH
    assert unknown_names(operators(graph)) == ()
    sizes = {buffer.name: graph.specs[buffer.spec].bytes for buffer in graph.buffers}
    assert sizes["q_proj.magnitude"] == 4 * WIDTH  # FP32, beside a half-precision base


def test_a_quantised_base_takes_9_sixteenths_of_a_byte_per_weight() -> None:
    """Half a byte each, and four bytes for every 64; the output layer and the biases stay as they are."""
    graph = graph_of(LoraOptions(8, quantised=True))
    base = [
        graph.specs[buffer.spec].bytes
        for buffer in graph.buffers
        if buffer.role is Role.PARAMETER and buffer.name.endswith(("packed", "scales"))
    ]
    assert sum(base) == 2 * WIDTH * WIDTH * 9 / 16
    assert graph.trainable_parameters == 2 * 8 * WIDTH


def test_a_quantised_weight_is_dequantised_when_used_forward_and_backward() -> None:
    graph = graph_of(LoraOptions(8, quantised=True), "bf16")
    assert unknown_names(operators(graph)) == ()
    found = [op for op in operators(graph) if op.name == "foretrain.dequantise"]
    assert [op.phase for op in found] == [
        Phase.FORWARD,
        Phase.FORWARD,
        Phase.BACKWARD,
    ]  # none below the first
    for op in found:
        assert op.work.read_bytes == WIDTH * WIDTH * 9 / 16
        assert op.work.write_bytes == WIDTH * WIDTH * 2  # bfloat16
    kept = [buffer for buffer in graph.buffers if buffer.role is Role.ACTIVATION]
    assert all(graph.specs[buffer.spec].elements < WIDTH * WIDTH for buffer in kept)


def test_the_output_layer_is_not_quantised() -> None:
    net = apply_lora(Net(), LoraOptions(2, quantised=True))
    kinds = [type(layer) for layer in (net.mlp, net.head)]
    assert kinds == [FourBitLinear, nn.Linear]


def test_transformers_transposed_layer_is_a_linear_one() -> None:
    from foretrain.workloads.readers._torchvision import repair_torchvision

    repair_torchvision()
    from transformers.pytorch_utils import Conv1D

    layer = Conv1D(9, 3)  # type: ignore[no-untyped-call]  # 3 inputs, 9 outputs
    net = apply_lora(nn.ModuleDict({"c_attn": layer}), LoraOptions(2))
    assert net["c_attn"](torch.rand(4, 3)).shape == (4, 9)  # type: ignore[index]
    assert sum(p.numel() for p in net.parameters() if p.requires_grad) == 2 * (3 + 9)


def test_torch_s_own_attention_still_runs() -> None:
    net = nn.ModuleDict({"attend": nn.MultiheadAttention(8, 2), "head": nn.Linear(8, 2)})
    apply_lora(net, LoraOptions(2))
    x = torch.rand(3, 1, 8)
    assert net["attend"](x, x, x)[0].shape == x.shape
    assert isinstance(net["head"], LoraLinear)


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("r=16", LoraOptions(16)),
        (" r=8 , targets = q_proj+v_proj ", LoraOptions(8, ("q_proj", "v_proj"))),
        ("quantised,r=4", LoraOptions(4, quantised=True)),
        ("r=4,dora", LoraOptions(4, dora=True)),
    ],
)
def test_parsing(text: str, options: LoraOptions) -> None:
    assert parse_lora(text) == options
    assert parse_lora(format_lora(options)) == options


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no rank"),
        ("r=x", "no rank"),
        ("r=0", "at least 1"),
        ("r=4,r=5", "given twice"),
        ("r=4,quantised=no", "takes no value"),
        ("r=4,dora=1", "takes no value"),
    ],
)
def test_what_cannot_be_parsed(text: str, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        parse_lora(text)


def test_errors_of_unknown_options_and_targets_name_near_ones() -> None:
    with pytest.raises(UnknownName, match="did you mean targets"):
        parse_lora("r=4,target=q")
    with pytest.raises(UnknownName, match="did you mean q_proj"):
        apply_lora(Net(), LoraOptions(4, ("qproj",)))


def test_a_model_without_linear_layers() -> None:
    with pytest.raises(InvalidRequest, match="no linear layers"):
        apply_lora(nn.Conv2d(3, 4, 1), LoraOptions())


@given(st.text(alphabet="r=,+1targequnis ", max_size=30))
def test_any_text_is_parsed_or_refused_with_a_sentence(text: str) -> None:
    try:
        assert parse_lora(text).rank >= 1
    except ForetrainError as error:
        assert str(error)


def test_scales_of_four_bit_weights_stay_in_full_precision_among_half_weights() -> None:
    graph = graph_of(LoraOptions(rank=8, quantised=True), "bf16", "bf16")
    kinds = {
        buffer.name: graph.specs[buffer.spec].dtype
        for buffer in graph.buffers
        if buffer.role is Role.PARAMETER
    }
    assert kinds["q_proj.base.packed"] == "uint8"
    assert kinds["q_proj.base.scales"] == "float32"
    assert kinds["q_proj.base.bias"] == kinds["head.weight"] == "bfloat16"
    assert kinds["q_proj.down.weight"] == "float32"
    products = [call for call in graph.calls if call.name == "foretrain.dequantise"]
    assert {graph.specs[call.outputs[0]].dtype for call in products} == {"bfloat16"}


def test_double_quantisation_stores_a_byte_for_each_scale_and_one_scale_for_256_of_them() -> None:
    from foretrain.workloads.lora_layers import four_bit

    layer = torch.nn.Linear(1024, 512, bias=False, device="meta")
    plain, double = four_bit(layer), four_bit(layer, double=True)
    blocks = 1024 * 512 // 64
    assert plain.scales.nbytes == 4 * blocks
    assert double.scales.nbytes == blocks
    assert double.of_scales is not None and double.of_scales.nbytes == 4 * blocks // 256
    double.to(torch.bfloat16)
    assert double.of_scales.dtype == torch.float32
    assert parse_lora("r=4,quantised,double").double
    with pytest.raises(InvalidRequest, match="add quantised"):
        parse_lora("r=4,double")


def test_adapters_may_have_the_precision_of_the_base() -> None:
    for half, dtype in ((False, "float32"), (True, "bfloat16")):
        graph = graph_of(LoraOptions(8, ("q_proj",), half=half), "bf16", "bf16")
        trained = {graph.specs[b.spec].dtype for b in graph.buffers if b.name in graph.trained_names}
        assert dtype in trained
        assert (("float32" in trained) is False) is half
    assert parse_lora("r=8,half").half


class Experts(nn.Module):
    """Two experts whose weights are one tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Parameter(torch.empty(2, WIDTH, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.bmm(x.expand(2, -1, -1), self.down.transpose(-2, -1)).sum(0)


class Mixture(nn.Module):
    """A projection, experts, and an output layer."""

    def __init__(self) -> None:
        super().__init__()
        self.q_proj = nn.Linear(WIDTH, WIDTH)
        self.experts = Experts()
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(self.experts(self.q_proj(x)))
        return result


def test_experts_stored_together_are_quantised_and_never_kept_dequantised() -> None:
    with torch.device("meta"):
        module, inputs = Mixture(), torch.rand(4, WIDTH)
    adapted = apply_lora(module, LoraOptions(8, quantised=True))
    assert isinstance(module.experts.get_submodule("down"), FourBitStack)
    graph = trace(Example(adapted, (inputs,), torch.sum, samples=4), ResolvedOptions())
    weights = 2 * WIDTH * WIDTH
    sizes = {buffer.name: graph.specs[buffer.spec].bytes for buffer in graph.buffers}
    assert sizes["experts.down.packed"] + sizes["experts.down.scales"] == weights // 2 + weights // 64 * 4
    made = [
        call.phase for call in graph.calls if call.name == "foretrain.dequantise" and "experts" in call.module
    ]
    assert made == [Phase.FORWARD, Phase.BACKWARD]
    forward = sum(call.phase is Phase.FORWARD for call in graph.calls)
    kept = [b for b in graph.buffers if b.role is Role.ACTIVATION and b.born < forward <= b.dies]
    assert all(graph.specs[buffer.spec].elements < weights for buffer in kept)


@pytest.mark.parametrize(("model", "blocks"), [("llama2-70b", 2), ("mixtral-8x7b", 1)])
def test_models_of_the_zoo_have_blocks_in_four_bits(model: str, blocks: int) -> None:
    """Weights of blocks, experts among them, take 0.5 bytes and 1/64 of a scale of 4; embeddings stay."""
    source = read_model(model).with_blocks(blocks)
    options = ResolvedOptions(precision="bf16", weights="bf16")
    lora = LoraOptions(16, quantised=True)
    graph = trace_workload(Workload(source, BuildOptions(batch=1, seq_len=32), options, lora))
    stored = [
        graph.specs[buffer.spec]
        for buffer in graph.buffers
        if buffer.role is Role.PARAMETER and buffer.name.endswith((".packed", ".scales"))
    ]
    with torch.device("meta"):
        whole = build(model, BuildOptions(batch=1, seq_len=32), blocks).module
    weights = sum(
        layer.weight.numel()
        for path, layer in whole.named_modules()
        if isinstance(layer, nn.Linear) and path.startswith("blocks.")
    )
    assert sum(spec.bytes for spec in stored) / weights == pytest.approx(0.5 + 4 / 64)


class ComposedGelu(nn.Module):
    """`gelu_new` of transformers: five operators, of which autograd keeps four tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.q_proj = nn.Linear(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.q_proj(x)
        x = 0.5 * x * (1.0 + torch.tanh(0.7979 * (x + 0.044715 * torch.pow(x, 3.0))))
        result: torch.Tensor = self.head(x)
        return result


def test_a_composed_activation_keeps_what_autograd_keeps() -> None:
    module = apply_lora(ComposedGelu(), LoraOptions(8))
    weights = {parameter.untyped_storage().data_ptr() for parameter in module.parameters()}
    inputs, kept = torch.rand(4, WIDTH), dict[int, int]()

    alive: list[torch.Tensor] = []

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        alive.append(tensor)  # no storage is used again while it is counted
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights and storage.data_ptr() != inputs.untyped_storage().data_ptr():
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        module(inputs).sum()
    graph = trace(Example(module, (inputs,), torch.sum, samples=4), ResolvedOptions())
    assert saved_bytes(graph) == sum(kept.values()) + 4  # and the loss
    assert sum(size == inputs.nbytes for size in kept.values()) == 4
