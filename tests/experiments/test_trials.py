"""Two workers really train together, each in a network namespace."""

from __future__ import annotations

import os
from typing import Any

import pytest
from experiments.trials import TRIALS

from foretrain.errors import BackendFailed
from foretrain.measuring.distributed_trials.crew import crew
from foretrain.measuring.distributed_trials.namespaces import named, why_not

pytestmark = pytest.mark.skipif(why_not() is not None, reason=f"no namespaces here: {why_not()}")


def test_two_workers_train_and_are_gone_afterwards() -> None:
    with crew(2) as team:
        processes = team.processes[1:]
        settings: dict[str, Any] = {"model": "convnet", "batch": 2, "seconds": 0.1, "fewest": 2, "most": 5}
        answers = team.do(TRIALS["ddp"], **settings)
        assert len(answers) == 2
        assert all(answer["seconds"] > 0 and answer["runs"] >= 2 for answer in answers)
        # a slow network shows: each sends and receives 5.2 MB of gradients, at 10 MB/s
        team.cap(10e6)
        capped = team.do(TRIALS["ddp"], **settings)
        assert all(answer["seconds"] > 0.45 for answer in capped)
        with pytest.raises(BackendFailed, match="no model"):
            team.do(TRIALS["ddp"], **{**settings, "model": "perceptron"})
    assert not [name for name in named() if f"-{os.getpid()}-" in name]
    assert not [process for process in processes if _is_alive(process)]


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True
