"""Schedules that run for real: jobs, attempts, the bill of nodes, and the forecast of each slot."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "schedules",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("name", sa.Text, nullable=False, unique=True),
        sa.Column("backend", sa.Text, nullable=False),
        sa.Column("policy", sa.Text, nullable=False),
        sa.Column("folder", sa.Text, nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("boot", sa.Text, nullable=False),
        sa.Column("origin_seconds", sa.Double, nullable=False),
        sa.Column("last_seconds", sa.Double, nullable=False),
        sa.Column("problem", sa.Text, nullable=False),
        sa.Column("hosts", sa.Text, nullable=False),
    )
    op.create_table(
        "schedule_jobs",
        _schedule(),
        sa.Column("job", sa.String(255), primary_key=True),
        sa.Column("status", sa.String(32), nullable=False),
        sa.Column("work_left", sa.Double, nullable=False),
        sa.Column("pace", sa.Double, nullable=False),
        sa.Column("starts", sa.Integer, nullable=False),
        sa.Column("failures", sa.Integer, nullable=False),
        sa.Column("run_seconds", sa.Double, nullable=False),
        sa.Column("start_seconds", sa.Double),
        sa.Column("finish_seconds", sa.Double),
        sa.Column("message", sa.Text, nullable=False),
    )
    op.create_table(
        "attempts",
        sa.Column("key", sa.String(64), primary_key=True),
        _schedule(is_key=False),
        sa.Column("job", sa.String(255), nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("state", sa.String(32), nullable=False),
        sa.Column("node_type", sa.Text, nullable=False),
        sa.Column("gpus", sa.Integer, nullable=False),
        sa.Column("nodes", sa.Text, nullable=False),
        sa.Column("hosts", sa.Text, nullable=False),
        sa.Column("devices", sa.Text, nullable=False),
        sa.Column("handle", sa.Text),
        sa.Column("started_seconds", sa.Double, nullable=False),
        sa.Column("ended_seconds", sa.Double),
        sa.Column("exit_code", sa.Integer),
        sa.Column("message", sa.Text, nullable=False),
        sa.UniqueConstraint("schedule", "job", "number", name="attempts_number"),
    )
    op.create_table(
        "node_intervals",
        _schedule(),
        sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("node", sa.Integer, nullable=False),
        sa.Column("node_type", sa.Text, nullable=False),
        sa.Column("usd_per_hour", sa.Double, nullable=False),
        sa.Column("on_since", sa.Double, nullable=False),
        sa.Column("start_seconds", sa.Double, nullable=False),
        sa.Column("end_seconds", sa.Double),
        sa.Column("is_last", sa.Boolean, nullable=False),
        sa.Column("shares", sa.Text, nullable=False),
    )
    op.create_table(
        "slots",
        _schedule(),
        sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("start_seconds", sa.Double, nullable=False),
        sa.Column("event", sa.Text, nullable=False),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("forecast_seconds", sa.Double, nullable=False),
        sa.Column("forecast_usd", sa.Double, nullable=False),
        sa.Column("decision_seconds", sa.Double, nullable=False),
    )


def _schedule(*, is_key: bool = True) -> sa.Column[str]:
    return sa.Column(
        "schedule",
        sa.String(32),
        sa.ForeignKey("schedules.id", ondelete="CASCADE"),
        primary_key=is_key,
        nullable=False,
    )
