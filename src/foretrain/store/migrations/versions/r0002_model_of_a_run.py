"""The model of a run as a column with an index, taken from its setting; runs by their start."""

from __future__ import annotations

import json

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column, fill it, and add the indexes."""
    op.add_column("runs", sa.Column("model", sa.Text, nullable=False, server_default=""))
    runs = sa.table("runs", sa.column("id"), sa.column("setting"), sa.column("model"))
    connection = op.get_bind()
    for run_id, setting in connection.execute(sa.select(runs.c.id, runs.c.setting)).all():
        model = json.loads(setting).get("model")
        if isinstance(model, str):
            connection.execute(runs.update().where(runs.c.id == run_id).values(model=model))
    op.create_index("runs_started_at", "runs", ["started_at"])
    op.create_index("runs_model", "runs", ["model"])
