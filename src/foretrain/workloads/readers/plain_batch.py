"""Questions a model asks of values that a trace does not have, answered as a plain batch would.

Library models look whether any token is padding, or whether all positions follow one another, and take the
general path if so. In a plain batch, of full sequences of which each is one document, none is and all do.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_ANSWERS = {"all": True, "any": False}


class PlainBatch(TorchFunctionMode):
    """For tensors without data `bool(x.all())` is True; `bool(x.any())` and `value in x` are False.

    A sum of truth values counts them all, which is how some ask whether all are true.

    Any other look at a value still fails, and the trace says so.
    """

    def __torch_function__(
        self, func: Any, kinds: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = getattr(func, "__name__", "")
        if name in {"__bool__", "item"} and hasattr(args[0], "_plain_answer"):
            return args[0]._plain_answer
        if name == "__contains__" and args[0].is_meta:
            return False
        result = func(*args, **(kwargs or {}))
        if name in {"__eq__", "eq"} and hasattr(args[0], "_plain_sum"):
            result._plain_answer = args[0]._plain_sum == args[1]
        if name == "sum" and args[0].dtype is torch.bool and result.is_meta and not result.dim():
            result._plain_sum = args[0].numel()
        if name in _ANSWERS and isinstance(result, torch.Tensor) and result.is_meta and not result.dim():
            result._plain_answer = _ANSWERS[name]  # type: ignore[attr-defined]
        return result
