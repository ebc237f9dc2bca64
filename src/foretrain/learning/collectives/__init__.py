"""What measured collectives teach about links; `python -m foretrain.learning.collectives --data DIR`."""
