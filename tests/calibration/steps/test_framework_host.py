"""The pace of frameworks' hosts, by hand."""

import pytest
from calibration.steps.framework_host import Paced, _fitted


def test_a_gpu_gets_the_mean_of_its_hosts_and_others_that_of_all() -> None:
    paced = [
        Paced("one", "cloud", "t4", 2.0),
        Paced("one", "cloud", "t4", 4.0),
        Paced("one", "cloud", "l4", 4.0),
        Paced("two", "cluster", "l4", 1.0),
    ]
    fitted = _fitted(paced)
    assert fitted["devices"] == pytest.approx({"t4": 3.0, "l4": 2.0})  # of 4 and 1, geometrically
    assert fitted["factor"] == pytest.approx(2.0)  # median 4 in the cloud, 1 in the cluster
