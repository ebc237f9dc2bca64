"""Who runs where: joint capacity planning and scheduling of many training jobs.

One loop drives simulation and reality (`loop`):

    while backend.next_event() is not None:
        backend.apply(policy.decide(backend.state()))

- `problem`: jobs, node types and the fleet; `files` reads them, `job_times` predicts how long jobs take.
- `state`: what a policy sees at an event; `decision`: what it returns, and the check of it.
- `placement`: which node takes which load, so that as few jobs as possible move.
- `policies/`: one file each, found by the registry.
- `simulation/`: the backend that jumps from event to event. Real ones are in `foretrain.backends`.
- `accounting`: the bill of a run, and the answer of `simulate` and `run`.
"""
