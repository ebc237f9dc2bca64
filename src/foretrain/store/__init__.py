"""WHAT HAPPENED, KEPT: runs of training commands, their step times, resource series and predictions.

    with open_store() as store:
        store.add(run)
        store.runs(RunQuery(model="resnet50", limit=10))

The database library is imported when a store is opened, not before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretrain.store.runs import RunQuery

if TYPE_CHECKING:
    from foretrain.store.database import Store

__all__ = ["RunQuery", "open_store"]


def open_store(url: str | None = None) -> Store:
    """Open the store at a path or URL and bring its schema up to date; it is created if it does not exist.

    `url` is the path of an SQLite file, `sqlite:///PATH` or `postgresql://USER@HOST:PORT/DATABASE`. Without
    it, the environment variable `FORETRAIN_STORE` names the store, else it is `runs.sqlite` in the user's
    data folder.
    """
    from foretrain.store.database import Store
    from foretrain.store.opening import open_database

    return Store(open_database(url))
