"""Real distributed training on this machine's CPU: one process a worker, each in a network namespace.

`crew` starts the workers and hands them tasks; `member` is what runs in each of them. A task is the name of a
trial and its settings: `copies` and `collectives` (`benchmarks`), `solo`, `ddp`, `fsdp` and `pipeline`
(`training`), or `parameter_server`.
"""
