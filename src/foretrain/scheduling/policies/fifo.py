"""First in, first out: one job a node, no preemption, the performance model picks the node type."""

from __future__ import annotations

from dataclasses import dataclass

from foretrain.scheduling.decision import Decision, NodeLoad
from foretrain.scheduling.policies._base import Policy
from foretrain.scheduling.state import State


@dataclass(frozen=True)
class Fifo(Policy):
    """Thin first version; replaced by the family of first-principles rules."""

    name = "fifo"
    summary = "First in, first out; one job per node, no preemption."

    def decide(self, state: State) -> Decision:
        """Running jobs stay; free nodes take waiting jobs in order of submission."""
        loads = [
            NodeLoad(state.fleet.group_of(node.number), node.node_type, node.shares)
            for node in state.nodes.values()
            if node.shares
        ]
        waiting = sorted(
            (each for each in state.jobs.values() if each.running is None),
            key=lambda each: each.job.submit_seconds,
        )
        for job in waiting:
            if len(loads) >= state.available(0):
                break
            best = min(state.configurations(job), key=lambda each: state.finish_usd(job, each), default=None)
            if best is not None:
                loads.append(NodeLoad(0, best.node_type, ((job.job.name, best.gpus),)))
        return Decision(tuple(loads))
