"""Tensor parallelism of modules whose gradients are added up in FP32 buffers that stay."""

from collections import Counter

import pytest

from foretrain.prediction.strategies.program import Program
from foretrain.prediction.strategies.tensor import tensor_parallel
from foretrain.workloads.graph import Role
from foretrain.workloads.options import ResolvedOptions
from foretrain.workloads.zoo.catalogue import Sizes


@pytest.mark.parametrize(("sequence", "in_each_layer"), [(True, 10), (False, 4)])
def test_adding_up_divided_gradients_needs_no_exchange(sequence: bool, in_each_layer: int) -> None:
    """With sequence parallelism a layer gathers six times and reduces four times; without, it sums four."""
    import torch

    from foretrain.workloads.tracing.step import trace
    from foretrain.workloads.zoo.transformers import llama

    def exchanges(layers: int) -> tuple[int, Counter[Role]]:
        shape = {"width": 64, "hidden": 128, "heads": 4, "kv_heads": 4, "vocabulary": 128}
        with torch.device("meta"):
            example = llama(Sizes(2, 32, attention="flash"), layers=layers, fused_kernels=True, **shape)
        options = ResolvedOptions(
            precision="bf16",
            optimizer="adamw-fused",
            attention="flash",
            weights="bf16",
            master_weights=True,
            gradients="fp32",
        )
        divided = tensor_parallel(Program(trace(example, options)), 2, sequence)
        held: Counter[Role] = Counter()
        for buffer in divided.graph.buffers:
            held[buffer.role] += divided.graph.specs[buffer.spec].bytes
        return len(divided.exchanges), held

    three, held = exchanges(3)
    two, _ = exchanges(2)
    assert three - two == in_each_layer
    assert held[Role.GRADIENT] == 2 * held[Role.PARAMETER]
