"""Training logs, read from what tools write: one form a file."""

from foretrain.convergence.logs._base import Log, LogReader
from foretrain.convergence.logs.catalogue import read_history, read_log, readers

__all__ = ["Log", "LogReader", "read_history", "read_log", "readers"]
