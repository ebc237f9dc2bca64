"""Activation checkpointing: repeated blocks drop their activations and run again in the backward pass."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

from foretrain.errors import InvalidRequest


def checkpoint_blocks(module: torch.nn.Module, again: Callable[[], AbstractContextManager[Any]]) -> int:
    """Wrap every block of the model's repeated stacks; returns how many there are.

    `again` makes what is entered for every recomputation, which runs outside the forward pass.

    A stack is a `ModuleList` or `Sequential` with at least two children of one class that contain
    parameters; the outermost such stacks are taken, as Megatron, FSDP and the Hugging Face models do.
    """
    blocks = list(_blocks(module))
    if not blocks:
        raise InvalidRequest("this model has no repeated blocks to checkpoint (no stack of equal modules)")
    for block in blocks:
        _wrap(block, again)
    return len(blocks)


def _blocks(module: torch.nn.Module) -> list[torch.nn.Module]:
    children = list(module.children())
    if isinstance(module, torch.nn.ModuleList | torch.nn.Sequential):
        kinds = {type(child) for child in children}
        weighty = all(any(True for _ in child.parameters()) for child in children)
        compound = all(any(True for _ in child.children()) for child in children)
        if len(children) >= 2 and len(kinds) == 1 and weighty and compound:
            nested = [block for child in children for block in _blocks(child)]
            is_stage = bool(nested) and not isinstance(module, torch.nn.ModuleList)
            return nested if is_stage else children
    return [block for child in children for block in _blocks(child)]


def _wrap(block: torch.nn.Module, again: Callable[[], AbstractContextManager[Any]]) -> None:
    forward = block.forward

    @wraps(forward)
    def recomputed(*args: Any, **kwargs: Any) -> Any:
        return checkpoint(
            forward,
            *args,
            use_reentrant=False,
            preserve_rng_state=False,
            context_fn=lambda: (nullcontext(), again()),
            **kwargs,
        )

    block.forward = recomputed
