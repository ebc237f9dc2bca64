"""Suites that every implementation of an extension must pass; inherit one in a test class and name yours.

class TestMyModel(OperatorModelSuite):
    model = MyModel()

class TestMyStrategy(StrategySuite):
    def spread(self, program, degree):
        return my_strategy(program, degree)

    def graphs(self):
        return [my_graph]

class TestMyRegisteredStrategy(RegisteredStrategySuite):
    def strategies(self):
        return [strategies()["my-strategy"]]

    def graphs(self):
        return [my_graph]

class TestMyPolicy(PolicySuite):
    def policies(self):
        return [MyPolicy()]

class TestMyBackend(BackendSuite):
    def backend(self, problem, folder):
        return my_backend(problem, folder)

class TestMyLearner(LearnerSuite):
    def fit(self): ...
    def predict(self, model): ...
    def save(self, model, folder): ...
    def load(self, path): ...
"""

from foretrain.testing.backends import BackendSuite
from foretrain.testing.learners import LearnerSuite
from foretrain.testing.operator_models import OperatorModelSuite
from foretrain.testing.policies import PolicySuite
from foretrain.testing.strategies import RegisteredStrategySuite, StrategySuite

__all__ = [
    "BackendSuite",
    "LearnerSuite",
    "OperatorModelSuite",
    "PolicySuite",
    "RegisteredStrategySuite",
    "StrategySuite",
]
