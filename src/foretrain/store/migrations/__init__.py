"""The revisions of the schema, in order; alembic reads their files. Opening a store applies them."""

from __future__ import annotations

REVISIONS = ("0001", "0002", "0003")
