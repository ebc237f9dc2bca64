"""The headings that options stand under in a help text."""

from __future__ import annotations

COMMON = "Common options"
MODEL, STEP, MEMORY = "Model", "Training step", "Precision and memory"
MACHINES, PARALLELISM, INPUT, COST = "Machines", "Parallelism", "Input", "Cost model"
LENGTH, JOB, MONEY_AND_ENERGY, OWNING = "Length of the job", "Running the job", "Money and energy", "Owning"
LOG, PRIOR, FIT = "Training log", "Prior knowledge", "Fit"
HERE, TRACES, STORED, NODES = "This machine", "Profiler traces", "Stored runs", "Several nodes"
POLICY, DISTURBANCES, GENERATED = "Policy", "Disturbances", "Generated problems and traces"
PRICES, OUTPUT = "Price files", "Output"
PANELS = (
    COMMON, MODEL, STEP, MEMORY, MACHINES, PARALLELISM, INPUT, COST, LENGTH, JOB, MONEY_AND_ENERGY, OWNING,
    LOG, PRIOR, FIT, HERE, TRACES, STORED, NODES, POLICY, DISTURBANCES, GENERATED, PRICES, OUTPUT,
)  # fmt: skip
"""In this order."""
