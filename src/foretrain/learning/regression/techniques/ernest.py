"""Ernest: time over machines from four terms that distributed jobs are made of.

    t = θ0 + θ1 · work / machines + θ2 · log(machines) + θ3 · machines ,   θ >= 0

a fixed cost, computation that divides, a tree of messages, and what grows with every machine. The work of one
machine is its batch; where a table has the global batch, it is divided by the GPUs.

Reference: S. Venkataraman et al., "Ernest: efficient performance prediction for large-scale advanced
analytics", NSDI 2016.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from foretrain.learning.regression.columns import BATCH, GPUS, ITERATIONS, Schema
from foretrain.learning.regression.table import Sample
from foretrain.learning.regression.techniques._base import LinearPredictor, Parameters, Technique, read_linear
from foretrain.learning.regression.techniques.nnls import non_negative
from foretrain.learning.regression.terms import Term

GLOBAL_BATCH = "global_batch"


class Ernest(Technique):
    """The terms of Ernest, non-negative."""

    name = "ernest"
    about = "Ernest: fixed, divided, logarithmic and linear in the GPUs, non-negative"

    def lacks(self, schema: Schema) -> str:
        """A number of GPUs that varies."""
        return "" if schema.with_role(GPUS) is not None else "a number of GPUs (column gpus) that varies"

    def fit(self, sample: Sample, parameters: Parameters) -> LinearPredictor:
        """Relative errors least; each category has its own four terms."""
        del parameters
        return non_negative(sample, _terms(sample))

    def read(self, plain: Mapping[str, Any], schema: Schema) -> LinearPredictor:
        """From terms and coefficients."""
        return read_linear(plain, schema)


def _terms(sample: Sample) -> list[Term]:
    schema = sample.schema
    gpus, batch = schema.with_role(GPUS), schema.with_role(BATCH)
    assert gpus is not None, "checked by `lacks`"
    terms = [Term(logs=(gpus.name,)), Term(((gpus.name, 1),))]
    if batch is not None:
        terms.append(Term(((batch.name, 1),)))
    elif GLOBAL_BATCH in schema.names:
        terms.append(Term(((GLOBAL_BATCH, 1), (gpus.name, -1))))
    else:
        terms.append(Term(((gpus.name, -1),)))
    iterations = schema.with_role(ITERATIONS)
    if iterations is None:
        return terms
    return [Term((*term.powers, (iterations.name, 1)), term.logs) for term in terms] + terms
