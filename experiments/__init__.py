"""Our own rigs: trials of CPU workers on one machine, their cores as a model, times to decode samples.

Not part of the wheel. `validation` predicts what they measure; facts that were measured with them name them
as their source. Workers are started by `foretrain.measuring.distributed_trials`, as in a user's campaign.
"""
