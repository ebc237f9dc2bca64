"""Real distributed training on this machine's CPU: one process a worker, each in a network namespace.

`crew` starts the workers and hands them tasks; `member` is what runs in each of them. A task is the place of
a trial, a function, and its settings. `training` has that of a campaign; `experiments/` others of our own.
"""
