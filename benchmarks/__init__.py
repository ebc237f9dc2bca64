"""foretrain's own speed against its targets: `python -m benchmarks`.

A benchmark is a function in a module of this package that carries `@benchmark`; a new concern is a new file,
found without being listed anywhere.
"""
