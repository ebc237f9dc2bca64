"""The cluster of `ray_for_tests.sh`: starts the nodes, then the command, and brings dead nodes back on
request.

A file `start-N` in $RAY_TEST_STATE asks for node N to be started again.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

NODES = 2
TURN_SECONDS = 0.1
SETTINGS = {
    "RAY_worker_niceness": "0",  # else its workers wait for all the other tests
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_failure_threshold": "3",
}
"""A dead node is noticed within seconds."""


def main() -> int:
    """Run the command given as arguments beside the cluster; returns its exit code."""
    os.environ.update(SETTINGS)
    from ray import cluster_utils

    folder = Path(os.environ["RAY_TEST_STATE"])
    cluster: Any = cluster_utils.Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 0, "num_gpus": 0, "node_name": "head", "include_dashboard": False},
    )

    def add(number: int) -> None:
        node = cluster.add_node(num_cpus=2, num_gpus=2, node_name=f"node-{number}")
        raylet = node.all_processes["raylet"][0].process
        (folder / f"node-{number}.pid").write_text(str(raylet.pid))

    for number in range(NODES):
        add(number)
    cluster.wait_for_nodes()
    command = subprocess.Popen(sys.argv[1:], env={**os.environ, "RAY_ADDRESS": cluster.address})
    while True:
        try:
            code = command.wait(TURN_SECONDS)
            break
        except subprocess.TimeoutExpired:
            for number in range(NODES):
                if (folder / f"start-{number}").exists():
                    (folder / f"start-{number}").unlink()
                    add(number)
    cluster.shutdown()
    return code


if __name__ == "__main__":
    sys.exit(main())
