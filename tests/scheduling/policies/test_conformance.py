"""Every registered policy passes the suite, and hypothesis looks for states that break one."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from foretrain.scheduling.loop import Policy
from foretrain.scheduling.policies.catalogue import policies
from foretrain.testing import PolicySuite
from foretrain.testing.policies import decide
from foretrain.testing.scheduling_states import random_state


class TestRegisteredPolicies(PolicySuite):
    """All of them, one after the other."""

    @pytest.fixture(autouse=True, params=policies())
    def _policy(self, request: pytest.FixtureRequest) -> None:
        self.name = request.param

    def policies(self) -> Sequence[Policy]:
        return [policies()[self.name]]


@pytest.mark.parametrize("name", policies())
@settings(max_examples=40, suppress_health_check=list(HealthCheck))
@given(random=st.randoms(use_true_random=False))
def test_no_state_makes_a_policy_break_a_rule(name: str, random: Random) -> None:
    state = random_state(random, most_jobs=8)
    assert decide(policies()[name], state).loads == decide(policies()[name], state).loads
