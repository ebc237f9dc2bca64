"""WHAT IS TRAINED: models, read from anywhere, as graphs of one training step.

`workload.Workload` names a model with its sizes and options; `workload.graph_of` gives its graph, traced or
from the cache; `rules.operators` turns it into operators with kinds, named dimensions, FLOP and bytes.
"""
