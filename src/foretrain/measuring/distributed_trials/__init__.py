"""Real distributed training on this machine's CPU: one process a worker, each in a network namespace.

`crew` starts the workers and hands them tasks; `member` is what runs in each of them. A task is the name of a
trial and its settings: `solo` (no communication), `copies`, `collectives` (micro-benchmarks), or one of the
strategies `ddp`, `parameter_server`, `fsdp` and `pipeline`, each in a module of its own.
"""
