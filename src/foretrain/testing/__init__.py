"""Suites that every implementation of an extension must pass; inherit one in a test class and name yours.

class TestMyModel(OperatorModelSuite):
    model = MyModel()
"""

from foretrain.testing.operator_models import OperatorModelSuite

__all__ = ["OperatorModelSuite"]
