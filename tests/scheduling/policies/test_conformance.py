"""Every registered policy passes the suite, and hypothesis looks for states that break one."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from foretrain.scheduling.policies.catalogue import policies
from foretrain.scheduling.policy import Policy
from foretrain.testing import PolicySuite
from foretrain.testing.policies import decide
from foretrain.testing.scheduling_states import random_state

SLOW = ("auto", "milp")
"""They solve programs or simulate at every decision: fewer states, and short problems."""


class TestRegisteredPolicies(PolicySuite):
    """All of them that decide quickly, one after the other."""

    @pytest.fixture(autouse=True, params=[name for name in policies() if name not in SLOW])
    def _policy(self, request: pytest.FixtureRequest) -> None:
        self.name = request.param

    def policies(self) -> Sequence[Policy]:
        return [policies()[self.name]]


@pytest.mark.parametrize("name", SLOW)
def test_slow_policies_decide_validly_and_the_same_twice(name: str) -> None:
    for seed in range(4):
        state = random_state(Random(seed), most_jobs=4)
        assert decide(policies()[name], state).loads == decide(policies()[name], state).loads


@pytest.mark.parametrize("name", [name for name in policies() if name not in SLOW])
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(random=st.randoms(use_true_random=False))
def test_no_state_makes_a_policy_break_a_rule(name: str, random: Random) -> None:
    state = random_state(random, most_jobs=8)
    assert decide(policies()[name], state).loads == decide(policies()[name], state).loads
