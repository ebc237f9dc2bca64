"""Communication between devices: what a collective takes over the links of a cluster.

`network` says what links there are and what they reach, `medium` how a message travels over one, a file for
each algorithm how many messages of which size it takes, `catalogue` chooses among them.
"""

from foretrain.prediction.collectives._base import Collective, CollectiveCost, Group, Verb
from foretrain.prediction.collectives.catalogue import collective_cost, collective_seconds
from foretrain.prediction.collectives.network import Network, Tier, network_of, with_factor

__all__ = [
    "Collective",
    "CollectiveCost",
    "Group",
    "Network",
    "Tier",
    "Verb",
    "collective_cost",
    "collective_seconds",
    "network_of",
    "with_factor",
]
