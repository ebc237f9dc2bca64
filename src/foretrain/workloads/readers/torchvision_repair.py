"""Import torchvision where its compiled operators do not load.

On CPU builds of torch, `import torchvision` may fail with "operator torchvision::nms does not exist"; timm
and transformers then fail with it. Declaring the two operators whose absence stops the import is enough:
nothing here ever calls them.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from typing import Any

_declared: list[Any] = []
"""Holds the declarations; a torch library takes its operators along when it is collected."""


def repair_torchvision() -> None:
    """Make `import torchvision` work if it is installed; call before importing timm or transformers."""
    if "torchvision" in sys.modules or importlib.util.find_spec("torchvision") is None:
        return
    try:
        importlib.import_module("torchvision")
    except RuntimeError as error:
        if "torchvision::nms" not in str(error):
            raise
        _declare_missing()
        importlib.import_module("torchvision")


def _declare_missing() -> None:
    import torch

    for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        del sys.modules[name]
    library = torch.library.Library("torchvision", "FRAGMENT")
    for operator in ("nms", "qnms"):
        library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _declared.append(library)
