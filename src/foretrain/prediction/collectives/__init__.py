"""Communication between devices: the time of a collective over the links of a cluster.

`network` holds the links and their achieved rates, `medium` the time of messages over them, `algorithms` the
published collective algorithms, and `catalogue` chooses the fastest of them.
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
