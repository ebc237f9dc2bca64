"""Search the width, depth and batch of a language model under bounds on time, memory and money.

    python architecture_search.py --on aws:g5.xlarge --tokens 2B --max-hours 48 --max-usd 40 --max-gib 20

An Optuna study minimises the loss that a scaling law expects of each model. `foretrain.predict` says what
training it would take, without training anything: trials that would exceed a bound are infeasible, and the
sampler learns to avoid them. Install it with: pip install "foretrain[search]"
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

import optuna

import foretrain as ft
from foretrain.convergence.scaling_laws import laws, loss_law
from foretrain.units import GIB, HOUR, format_count, parse_count
from foretrain.workloads.transformer_shapes import TransformerShape

LAW = loss_law(laws()["besiroglu-2024"])
HEAD_WIDTH = 64
BEYOND = 1e3
"""By how much, as a share, a trial that cannot be trained at all exceeds its bounds."""


def suggest(trial: optuna.Trial, seq_len: int) -> tuple[TransformerShape, int]:
    """A Llama of some width and depth, and the batch of each device."""
    width = trial.suggest_int("width", 256, 2048, step=128)
    return (
        TransformerShape(
            family="llama",
            layers=trial.suggest_int("depth", 4, 32, step=2),
            width=width,
            heads=width // HEAD_WIDTH,
            feed_forward=256 * -(-8 * width // (3 * 256)),  # 8/3 of the width, rounded up to 256
            vocabulary=32_000,
            seq_len=seq_len,
            source="this study",
        ),
        2 ** trial.suggest_int("log2_batch", 0, 6),
    )


def excess(shape: TransformerShape, batch: int, asked: argparse.Namespace, folder: Path) -> dict[str, float]:
    """By how much training would exceed each bound, as a share of it: at most 0 where it keeps it."""
    (folder / "config.json").write_text(json.dumps(shape.config))
    answer = ft.predict(
        f"hf:{folder}", on=asked.on, batch=batch, seq_len=shape.seq_len, precision="bf16", tokens=asked.tokens
    )
    if isinstance(answer, ft.Infeasible) or answer.job is None or answer.job.usd is None:
        return dict.fromkeys(("hours", "usd", "gib"), BEYOND)
    memory = answer.memory  # its 90th percentile must fit the device, whatever the bound
    return {
        "hours": answer.job.seconds.p50 / HOUR / asked.max_hours - 1,
        "usd": answer.job.usd.p50 / asked.max_usd - 1,
        "gib": memory.bytes.p90 / min(asked.max_gib * GIB, memory.capacity_bytes) - 1,
    }


def search(asked: argparse.Namespace) -> optuna.Study:
    """The study; every trial is one prediction."""

    def objective(trial: optuna.Trial) -> float:
        shape, batch = suggest(trial, asked.seq_len)
        with tempfile.TemporaryDirectory() as folder:
            over = excess(shape, batch, asked, Path(folder))
        for name, share in over.items():
            trial.set_constraint(name, share)
        loss = LAW.loss(shape, asked.tokens)
        verdict = ", ".join(f"{name} {share:+.0%}" for name, share in over.items() if share > 0) or "feasible"
        print(
            f"trial {trial.number:3}: {format_count(shape.parameters):>5} parameters, {shape.layers} x "
            f"{shape.width}, batch {batch:2}: loss {loss:.3f}, {verdict}"
        )
        return loss

    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=asked.seed))
    study.optimize(objective, n_trials=asked.trials)
    return study


def main(words: list[str]) -> int:
    """Search, and print the best model that keeps all bounds."""
    parser = argparse.ArgumentParser(description="Search an architecture under bounds.")
    parser.add_argument("--on", default="aws:g5.xlarge", help="hardware, as foretrain predict takes it")
    parser.add_argument("--tokens", type=parse_count, default=2e9, help="tokens to train on, e.g. 2B")
    parser.add_argument("--seq-len", type=int, default=1024)
    parser.add_argument("--max-hours", type=float, default=48)
    parser.add_argument("--max-usd", type=float, default=40)
    parser.add_argument("--max-gib", type=float, default=20)
    parser.add_argument("--trials", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = search(parser.parse_args(words))
    feasible = [trial for trial in study.trials if max(trial.constraints.values()) <= 0]
    if not feasible:
        print("No trial keeps the bounds: relax one of them, or try more with --trials")
        return 1
    best = min(feasible, key=lambda trial: trial.value or 0.0)
    counted = f"{len(feasible)} of {len(study.trials)} trials feasible"
    print(f"best: {best.params}, expected loss {best.value:.3f}; {counted}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
