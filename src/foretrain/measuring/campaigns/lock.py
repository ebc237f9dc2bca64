"""One campaign of a name at a time on one store."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

from foretrain.facts.user_data import user_data_dir
from foretrain.store.locks import held


@contextmanager
def campaign_lock(campaign: str, store: str) -> Iterator[None]:
    """Hold the lock of a campaign on a store; another process of this machine that holds it is an error."""
    digest = hashlib.sha256(f"{campaign}\0{store}".encode()).hexdigest()[:16]
    with held(user_data_dir() / "locks" / f"campaign-{digest}.lock", f"the campaign {campaign!r}"):
        yield
