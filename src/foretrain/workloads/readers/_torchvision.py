"""`import torchvision` where its own operators are missing.

On CPU builds of torch it may fail with "operator torchvision::nms does not exist"; timm, transformers and
Lightning then fail with it. `repair_torchvision` declares the operators whose absence stops the import, with
kernels for those that detection models call.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

T = TypeVar("T")
_MISSING_OPERATOR = "operator torchvision::nms does not exist"
_declared: list[Any] = []
"""Holds the declarations; a torch library takes its operators along when it is collected."""


def repair_torchvision() -> None:
    """Make `import torchvision` work if it is installed; call before importing timm or transformers."""
    if "torchvision" in sys.modules or importlib.util.find_spec("torchvision") is None:
        return
    try:
        importlib.import_module("torchvision")
    except RuntimeError as error:
        if _MISSING_OPERATOR not in str(error):
            raise
        _declare_missing()


def with_torchvision(run: Callable[[], T]) -> T:
    """What `run` returns; where an import of torchvision stopped it, what it returns after the repair.

    A file may import torchvision by way of any other library, and most files do not: they need not wait.
    """
    try:
        return run()
    except Exception as error:
        if not any(_MISSING_OPERATOR in str(each) for each in _with_causes(error)):
            raise
    repair_torchvision()
    return run()


def _with_causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error and what it was raised from: transformers raises one of its own in place of the first."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _declare_missing() -> None:
    from foretrain.workloads.readers._torchvision_operators import declare_operators

    for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        del sys.modules[name]
    _declared.append(declare_operators())
    importlib.import_module("torchvision")
    for module in ("torchvision.extension", "torchvision.ops.roi_align"):
        vars(importlib.import_module(module))["_has_ops"] = lambda: True
