"""Hardware as people write it."""

import pytest

from foretrain.errors import ForetrainError, InvalidRequest, MissingData, UnknownName
from foretrain.facts.hardware import hardware


@pytest.mark.parametrize(
    ("text", "device", "per_node", "nodes"),
    [
        ("h100-sxm", "h100-sxm", 1, 1),
        ("h100-sxm:8", "h100-sxm", 8, 1),
        ("h100-sxm:8x4", "h100-sxm", 8, 4),
        ("NVIDIA H100 80GB HBM3:2", "h100-sxm", 2, 1),
        ("aws:p4d.24xlarge", "a100-sxm-40gb", 8, 1),
        ("aws:p4d.24xlarge:2", "a100-sxm-40gb", 8, 2),
        ("dgx-a100", "a100-sxm-80gb", 8, 1),
    ],
)
def test_forms(text: str, device: str, per_node: int, nodes: int) -> None:
    found = hardware(text)
    assert (found.device.id, found.devices_per_node, found.nodes) == (device, per_node, nodes)
    assert found.devices == per_node * nodes


def test_a_rented_machine_knows_its_price_and_its_links() -> None:
    found = hardware("aws:p4d.24xlarge")
    assert found.offer is not None
    assert found.offer.usd_per_hour > 0
    assert found.node is not None


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("h100-sxm:0", InvalidRequest, "DEVICE:COUNT"),
        ("h100-sxm:8y4", InvalidRequest, "not hardware"),
        ("h100", InvalidRequest, "family of devices"),
        ("h1000", UnknownName, "no device 'h1000'"),
        ("aws:p9.huge", UnknownName, "p9.huge"),
        ("fluidstack:H100_NVLINK_80GB::8", MissingData, "does not say which"),
    ],
)
def test_nonsense_is_explained(text: str, error: type[ForetrainError], message: str) -> None:
    with pytest.raises(error, match=message):
        hardware(text)
