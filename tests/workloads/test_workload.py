"""Workloads: requests, the cache, and graphs at other batch sizes."""

import os
from pathlib import Path
from typing import Any

import pytest

from foretrain.errors import InvalidRequest, UnknownName
from foretrain.workloads import readers
from foretrain.workloads import workload as workload_module
from foretrain.workloads.options import WorkloadRequest
from foretrain.workloads.rules import operators
from foretrain.workloads.summary import summarise
from foretrain.workloads.workload import (
    executed_graph,
    executed_graph_at,
    graph_at,
    graph_of,
    record_family,
    trace_workload,
    workload_of,
)


def works(graph: Any) -> list[object]:
    return [op.work for op in operators(graph)]


def test_resnet50_as_published() -> None:
    summary = summarise(graph_of(workload_of(WorkloadRequest("resnet50", batch=32, optimizer="momentum"))))
    assert summary.parameters == 25_557_032
    assert summary.forward_backward_flop == pytest.approx(777.6e9, rel=1e-3)


def test_the_published_voice_models() -> None:
    linear = summarise(graph_of(workload_of(WorkloadRequest("voice-linear", batch=20))))
    assert linear.parameters == 12_102_220
    assert round(linear.parameter_bytes / 2**20, 2) == 46.17
    conv = summarise(graph_of(workload_of(WorkloadRequest("voice-conv", batch=20))))
    assert conv.parameters == 376_200
    assert round(conv.parameter_bytes / 2**20, 2) == 1.44
    assert round(conv.forward_backward_bytes_per_sample / 2**20, 2) == 12.07


def test_layers_sum_to_the_whole() -> None:
    summary = summarise(graph_of(workload_of(WorkloadRequest("resnet18", batch=4))))
    assert sum(layer.parameters for layer in summary.layers) == summary.parameters
    assert sum(layer.forward_flop for layer in summary.layers) == summary.forward.flop
    assert sum(layer.backward_flop for layer in summary.layers) == summary.backward.flop


def test_the_second_request_does_not_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    request = WorkloadRequest("mnist-cnn", batch=8)
    first = graph_of(workload_of(request))
    monkeypatch.setattr(workload_module, "trace_workload", lambda _: pytest.fail("traced again"))
    assert graph_of(workload_of(request)) == first


def test_other_batch_sizes_are_re_derived(monkeypatch: pytest.MonkeyPatch) -> None:
    workload = workload_of(WorkloadRequest("mnist-cnn", batch=8, precision="bf16"))
    expected = works(trace_workload(workload.at(batch=100)))
    assert record_family(workload) is not None
    monkeypatch.setattr(workload_module, "trace_workload", lambda _: pytest.fail("traced again"))
    assert works(graph_at(workload, 100)) == expected
    assert works(graph_of(workload.at(batch=100))) == expected


def test_sequence_lengths_are_re_derived_too() -> None:
    workload = workload_of(WorkloadRequest("gpt2", batch=2, seq_len=32))
    recorded = record_family(workload, seq_lens=(32, 64))
    assert recorded is not None
    derived = recorded.at({"batch": 3, "seq_len": 128})
    assert works(derived) == works(trace_workload(workload.at(batch=3, seq_len=128)))


def test_options_make_different_graphs() -> None:
    plain = graph_of(workload_of(WorkloadRequest("mnist-cnn", batch=8)))
    compiled = graph_of(workload_of(WorkloadRequest("mnist-cnn", batch=8, compile=True)))
    forward = graph_of(workload_of(WorkloadRequest("mnist-cnn", batch=8, forward_only=True)))
    assert len(forward.calls) < len(compiled.calls) < len(plain.calls)


def test_a_compiled_graph_leads_back_to_the_one_that_is_divided() -> None:
    workload = workload_of(WorkloadRequest("mnist-cnn", batch=8, compile=True))
    for batch in (8, 16):
        expected = works(trace_workload(workload.at(batch=batch)))
        assert works(executed_graph_at(workload, batch).source) == expected
        assert works(executed_graph(workload.at(batch=batch)).source) == expected


def test_the_last_graphs_stay_in_memory() -> None:
    request = WorkloadRequest("mnist-cnn", precision="bf16")
    graphs = [graph_at(workload_of(request), batch) for batch in (8, 16)]
    assert [graph_at(workload_of(request), batch) for batch in (8, 16)] == graphs
    assert graph_at(workload_of(request), 8) is graphs[0]
    assert graph_at(workload_of(request), 16) is graphs[1]


def test_a_changed_file_is_traced_again(tmp_path: Path) -> None:
    file = tmp_path / "net.py"
    text = "import torch\ndef net():\n    return torch.nn.Linear(4, {}), torch.rand(2, 4), torch.sum\n"
    sizes = []
    for width in (3, 5):
        file.write_text(text.format(width))
        os.utime(file, (1e9, 1e9))  # as if both were written within a second
        sizes.append(graph_at(workload_of(WorkloadRequest(f"{file}:net")), 8).parameters)
    assert sizes == [4 * 3 + 3, 4 * 5 + 5]


def test_lora_freezes_the_base() -> None:
    summary = summarise(graph_of(workload_of(WorkloadRequest("gpt2", batch=1, seq_len=16, lora="r=4"))))
    assert 0 < summary.trainable_parameters < 0.01 * summary.parameters


def test_nonsense_is_explained() -> None:
    with pytest.raises(InvalidRequest, match="batch must be at least 1"):
        workload_of(WorkloadRequest("resnet50", batch=0))
    with pytest.raises(UnknownName, match="did you mean resnet50"):
        workload_of(WorkloadRequest("resnet-50x"))


def test_the_files_of_the_zoo_are_read_once_per_model(monkeypatch: pytest.MonkeyPatch) -> None:
    first = readers.read_model("mnist-cnn").fingerprint()
    monkeypatch.setattr(readers, "digest", lambda parts: pytest.fail(f"{len(parts)} files are read again"))
    assert readers.read_model("mnist-cnn").fingerprint() == first
