"""Runs with their environments, predictions, steps and series."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "environments",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("device", sa.Text, nullable=False),
        sa.Column("device_name", sa.Text, nullable=False),
        sa.Column("devices_per_node", sa.Integer, nullable=False),
        sa.Column("nodes", sa.Integer, nullable=False),
        sa.Column("cpu", sa.Text, nullable=False),
        sa.Column("cores", sa.Integer, nullable=False),
        sa.Column("memory_bytes", sa.BigInteger, nullable=False),
        sa.Column("driver", sa.Text, nullable=False),
        sa.Column("topology", sa.Text, nullable=False),
        sa.Column("versions", sa.Text, nullable=False),
    )
    op.create_table(
        "runs",
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("seconds", sa.Double),
        sa.Column("status", sa.String(32), nullable=False),
        sa.Column("exit_code", sa.Integer),
        sa.Column("command", sa.Text, nullable=False),
        sa.Column("setting", sa.Text, nullable=False),
        sa.Column(
            "environment", sa.String(32), sa.ForeignKey("environments.id", name="runs_environment"),
            nullable=False,
        ),
        sa.Column("provenance", sa.Text, nullable=False),
        sa.Column("message", sa.Text, nullable=False),
        sa.Column("campaign", sa.Text),
        sa.Column("trial", sa.Text),
        sa.Column("step_seconds", sa.Double),
        sa.Column("step_p10_seconds", sa.Double),
        sa.Column("step_p90_seconds", sa.Double),
        sa.Column("steps", sa.Integer),
        sa.Column("warm_up_steps", sa.Integer),
        sa.Column("variation", sa.Double),
        sa.Column("input_share", sa.Double),
        sa.Column("step_source", sa.Text),
        sa.UniqueConstraint("campaign", "trial", name="runs_trial"),
    )  # fmt: skip
    op.create_table(
        "predictions",
        _run(),
        sa.Column("made_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("version", sa.Text, nullable=False),
        sa.Column("knowledge", sa.Text, nullable=False),
        sa.Column("p10_seconds", sa.Double),
        sa.Column("p50_seconds", sa.Double),
        sa.Column("p90_seconds", sa.Double),
        sa.Column("memory_bytes", sa.Double),
        sa.Column("answer", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "worker_steps",
        _run(),
        sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("worker", sa.Integer, nullable=False),
        sa.Column("node", sa.Integer, nullable=False),
        sa.Column("ends", sa.LargeBinary, nullable=False),
        sa.Column("seconds", sa.LargeBinary, nullable=False),
        sa.Column("input_seconds", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "series",
        _run(),
        sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("resource", sa.String(32), nullable=False),
        sa.Column("worker", sa.Integer, nullable=False),
        sa.Column("node", sa.Integer, nullable=False),
        sa.Column("label", sa.Text, nullable=False),
        sa.Column("seconds", sa.LargeBinary, nullable=False),
        sa.Column("values", sa.LargeBinary, nullable=False),
    )


def _run() -> sa.Column[str]:
    return sa.Column("run", sa.String(64), sa.ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True)
