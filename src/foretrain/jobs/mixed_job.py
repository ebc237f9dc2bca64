"""A whole job on a cluster whose nodes differ."""

from __future__ import annotations

from dataclasses import replace

from foretrain.jobs.job import Job, JobOptions, Steps, StepSummary, job_on_groups, state_bytes
from foretrain.prediction.answer import MixedPrediction
from foretrain.workloads.workload import graph_at


def mixed_job_of(prediction: MixedPrediction, steps: Steps, running: JobOptions | None = None) -> Job:
    """The job of so many of the steps predicted, on the nodes that take part in them.

    Nodes that are left out of the split cost nothing and draw nothing here.
    """
    split, step = prediction.split, prediction.step
    taking_part = tuple(
        replace(group, nodes=share.nodes_used)
        for group, share in zip(prediction.cluster.groups, split.shares, strict=True)
        if share.nodes_used
    )
    largest = max(max(share.batches) for share in split.shares if share.batches)
    saved = state_bytes(graph_at(prediction.workload, largest))
    one = StepSummary(step.seconds, step.forward_seconds, split.global_batch, saved)
    job = job_on_groups(one, steps, taking_part, running)
    idle = prediction.cluster.nodes - sum(group.nodes for group in taking_part)
    if not idle:
        return job
    note = (
        f"{idle} of {prediction.cluster.nodes} nodes do not train: neither their price nor their power counts"
    )
    return replace(job, notes=(*job.notes, note))
