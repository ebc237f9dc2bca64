"""Any run, for property tests."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
from hypothesis import strategies as st
from tests.support.runs import HERE, plain_run, prediction_of

from foretrain.store.runs import Resource, ResourceSeries, Status, StepSummary, WorkerSteps

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
NUMBERS = st.floats(1e-6, 1e9)
PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
ARRAYS = st.lists(st.floats(0, 1e6), max_size=20).map(np.array)
SUMMARIES = st.builds(
    StepSummary,
    seconds=NUMBERS,
    p10_seconds=NUMBERS,
    p90_seconds=NUMBERS,
    steps=st.integers(0, 10**6),
    warm_up_steps=st.integers(0, 100),
    variation=NUMBERS,
    input_share=st.none() | st.floats(0, 1),
    source=TEXTS,
)
STEPS = st.builds(
    WorkerSteps,
    worker=st.integers(-1, 99),
    node=st.integers(0, 9),
    ends=ARRAYS,
    seconds=ARRAYS,
    input_seconds=ARRAYS,
)
SERIES = ARRAYS.flatmap(
    lambda array: st.builds(
        ResourceSeries,
        resource=st.sampled_from(Resource),
        worker=st.integers(-1, 99),
        node=st.integers(0, 9),
        label=TEXTS,
        seconds=st.just(array),
        values=st.just(array[::-1].copy()),
    )
)
RUNS = st.builds(
    plain_run,
    started_at=st.datetimes(datetime(1990, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC)),
    seconds=NUMBERS,
    status=st.sampled_from(Status),
    exit_code=st.none() | st.integers(-64, 255),
    command=st.lists(st.text(max_size=10), max_size=4).map(tuple),
    setting=st.dictionaries(st.text(max_size=10), PLAIN, max_size=4),
    environment=st.builds(
        type(HERE),
        device=TEXTS,
        device_name=TEXTS,
        nodes=st.integers(1, 9),
        memory_bytes=st.integers(0, 2**50),
        versions=st.dictionaries(TEXTS, TEXTS, max_size=3),
    ),
    provenance=TEXTS,
    summary=st.none() | SUMMARIES,
    prediction=st.none() | NUMBERS.map(prediction_of),
    steps=st.lists(STEPS, max_size=3).map(tuple),
    series=st.lists(SERIES, max_size=3).map(tuple),
    message=TEXTS,
    campaign=TEXTS,
)
