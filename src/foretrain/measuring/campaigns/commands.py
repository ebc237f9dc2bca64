"""Trials that run a command."""
from __future__ import annotations
from foretrain.measuring.campaigns.outcome import Outcome
from foretrain.measuring.campaigns.trials import Trial


def run_command(trial: Trial) -> Outcome:
    raise NotImplementedError
