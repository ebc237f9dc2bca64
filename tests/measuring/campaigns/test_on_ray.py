"""Trials on a real Ray cluster of three nodes, in a network namespace with only a loopback interface."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from foretrain.errors import InvalidRequest
from foretrain.measuring.campaigns.campaign import Campaign, ModelEntry
from foretrain.measuring.campaigns.on_ray import interface_of
from foretrain.measuring.distributed_trials.namespaces import joined_hosts, why_not

CNN = ModelEntry(model="mnist-cnn")

ON_A_CLUSTER = """
import json, sys, threading
import ray
from ray.cluster_utils import Cluster
from foretrain.measuring.campaigns.campaign import Campaign, ModelEntry
from foretrain.measuring.campaigns.on_ray import RayRunner
from foretrain.measuring.campaigns.running import run_campaign
from foretrain.store import open_store

campaign = Campaign(name="ray", models=(ModelEntry(model="mnist-cnn"),), batch=(2,), workers=(2,),
                    strategy=("ddp", "ps-sync"), steps=6, order="grid", optimizer=("sgd",))
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
nodes = [cluster.add_node(num_cpus=1) for _ in range(3)]
cluster.wait_for_nodes()
ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")

class Runner(RayRunner):
    attempts = 0

    def _with_actors(self, trial, actors, places, started_at):
        Runner.attempts += 1
        if nodes:
            of_actors = {place[0] for place in places}
            lost = next(node for node in nodes if node.node_id in of_actors)
            nodes.clear()
            cluster.remove_node(lost, allow_graceful=False)
        return super()._with_actors(trial, actors, places, started_at)

with open_store(sys.argv[1]) as store:
    result = run_campaign(campaign, store, lambda: Runner(campaign), lambda _: None)
print(json.dumps({
    "attempts": Runner.attempts,
    "runs": [
        {"status": str(run.status), "message": run.message, "steps": run.summary and run.summary.steps,
         "nodes": run.environment.nodes, "strategy": run.setting.get("strategy", "")}
        for run in result.runs
    ],
}))
ray.shutdown()
cluster.shutdown()
"""


@pytest.fixture
def namespace() -> Iterator[str]:
    with joined_hosts(1) as hosts:
        (host,) = hosts.hosts
        subprocess.run(["ip", "-n", host.namespace, "link", "set", "eth0", "down"], check=True)
        yield host.namespace


@pytest.mark.skipif(why_not() is not None, reason=f"no namespaces here: {why_not()}")
def test_trials_run_on_the_nodes_and_a_lost_node_is_replaced(namespace: str, tmp_path: Path) -> None:
    environment = {**os.environ, "FORETRAIN_HOME": str(tmp_path)}
    command = ["ip", "netns", "exec", namespace, sys.executable, "-c", ON_A_CLUSTER, str(tmp_path / "runs")]
    run = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=500, check=False)
    assert run.returncode == 0, run.stderr[-2000:]
    # Ray may print lines of its own log after it.
    result = json.loads(next(line for line in run.stdout.splitlines() if line.startswith("{")))
    assert [each["status"] for each in result["runs"]] == ["completed"] * 2, result
    assert [(each["strategy"], each["nodes"]) for each in result["runs"]] == [("ddp", 2), ("ps-sync", 2)]
    assert all(each["steps"] for each in result["runs"])
    assert result["attempts"] == 3  # one trial lost its node and was run again


def test_several_rates_of_the_network_are_refused() -> None:
    from foretrain.measuring.campaigns.on_ray import RayRunner

    campaign = Campaign(name="a", models=(CNN,), workers=(2,), network=("1Gbit/s", "200Mbit/s"))
    with pytest.raises(InvalidRequest, match="nothing limits the network"):
        RayRunner(campaign)


def test_the_interface_of_an_address_is_found_without_a_library() -> None:
    assert interface_of("127.0.0.1") == "lo"
    assert interface_of("192.0.2.1") == "lo"  # of no interface here: the node is this machine alone
