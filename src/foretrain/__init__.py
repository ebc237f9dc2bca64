"""foretrain: know what a training job will take - time, money, memory, machines - before you run it."""

__version__ = "0.1.0"
