"""The model zoo: well-known models in plain torch, each with an example batch and a loss.

`zoo()` lists them without importing torch; `build(name, options)` makes one. Weights have torch's default
initialisation: what a step costs does not depend on them.
"""

from foretrain.workloads.zoo.catalogue import (
    AttentionKind,
    BuildOptions,
    EqualBlocks,
    Extent,
    Sizes,
    ZooEntry,
    build,
    zoo,
)

__all__ = ["AttentionKind", "BuildOptions", "EqualBlocks", "Extent", "Sizes", "ZooEntry", "build", "zoo"]
