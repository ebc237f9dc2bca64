"""Random scheduling problems by seed, as in the published studies: `families` names them.

    problem = families()["exponential"].problem(nodes=5, seed=1)

- `families`: the registry, and how a problem is put together.
- `arrivals`: when jobs are submitted; `job_kinds`: how long they take; `fleets`: where they may run.
"""
