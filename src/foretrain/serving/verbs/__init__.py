"""From plain requests to answers: every front end (Python, command line, later REST) asks through here.

Each verb turns the names, numbers and paths of its request into the core's nouns and calls the core; nothing
else does. The core is imported when a verb is called.
"""

from __future__ import annotations

from foretrain.serving.verbs.calibrating import (
    calibrate,
    export_calibration,
    forget_calibration,
    import_calibration,
    list_calibrations,
    show_calibration,
)
from foretrain.serving.verbs.consumption import pair, resources
from foretrain.serving.verbs.learning import converge, learn
from foretrain.serving.verbs.listing import devices, explain, links, models, offers
from foretrain.serving.verbs.predicting import (
    guide,
    plan,
    predict,
    rent_or_buy,
    scaling,
    scenario,
    trace,
)
from foretrain.serving.verbs.profiling import profile
from foretrain.serving.verbs.scheduling import run, schedule, simulate
from foretrain.serving.verbs.stored_runs import (
    compare_runs,
    delete_runs,
    export_runs,
    import_runs,
    list_runs,
    show_run,
    validate,
)

__all__ = [
    "calibrate",
    "compare_runs",
    "converge",
    "delete_runs",
    "devices",
    "explain",
    "export_calibration",
    "export_runs",
    "forget_calibration",
    "guide",
    "import_calibration",
    "import_runs",
    "learn",
    "links",
    "list_calibrations",
    "list_runs",
    "models",
    "offers",
    "pair",
    "plan",
    "predict",
    "profile",
    "rent_or_buy",
    "resources",
    "run",
    "scaling",
    "scenario",
    "schedule",
    "show_calibration",
    "show_run",
    "simulate",
    "trace",
    "validate",
]
