"""What a run records of the machine it ran on."""

import os
from types import SimpleNamespace

import pytest

from foretrain.measuring import this_machine
from foretrain.measuring.this_machine import device_id, this_environment


def test_a_machine_without_gpu_is_the_device_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(this_machine, "open_gpus", lambda: None)
    this = this_environment()
    assert (this.device, this.devices_per_node, this.nodes) == ("here", 1, 1)
    assert this.cores == len(os.sched_getaffinity(0)) and this.memory_bytes > 2**20
    assert this.device_name == this.cpu
    assert {"python", "foretrain", "numpy"} <= set(this.versions)


def test_a_machine_with_gpus_is_named_after_them(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = []
    gpus = SimpleNamespace(
        names=lambda: ("NVIDIA A100-SXM4-40GB",) * 8, driver=lambda: "550.54", close=lambda: closed.append(1)
    )
    monkeypatch.setattr(this_machine, "open_gpus", lambda: gpus)
    this = this_environment(nodes=2)
    assert (this.device, this.device_name) == ("a100-sxm-40gb", "NVIDIA A100-SXM4-40GB")
    assert (this.devices_per_node, this.nodes, this.driver) == (8, 2, "550.54")
    assert closed


def test_a_gpu_without_sheet_keeps_the_name_of_its_driver() -> None:
    assert device_id("NVIDIA Imaginary 9000") == "NVIDIA Imaginary 9000"
