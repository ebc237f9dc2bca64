"""Who runs where: joint capacity planning and scheduling of many training jobs.

One loop drives simulation and reality (`loop`):

    while backend.next_event() is not None:
        backend.apply(policy.decide(backend.state()))

- `problem`: jobs, node types and the fleet; `files` and `fleet_files` read them, `generators` draws
  them or replays a trace; `job_times` predicts how long jobs take.
- `state`: what a policy sees at an event; `loop`: what it returns, the check of that, and which node takes
  which load, so that as few jobs as possible move.
- `options`: where each job may run, for how long and for how much; `packing`: which jobs share a node.
- `policies/`: found by the registry. `price`, `milp` and `auto` look ahead with `outlook`.
- `simulation`: the backend that jumps from event to event. Real ones are in `foretrain.backends`.
- `accounting`: the bill of a run, and the answer of `simulate` and `run`; `forecast`: that of `schedule`.
"""
