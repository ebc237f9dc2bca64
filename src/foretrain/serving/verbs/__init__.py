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
from foretrain.serving.verbs.learning import converge, learn, learn_layers, learn_resources
from foretrain.serving.verbs.listing import devices, explain, links, models, offers
from foretrain.serving.verbs.measuring import Watcher, campaign, count_stored_trials, measure
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
    "Watcher",
    "calibrate",
    "campaign",
    "compare_runs",
    "converge",
    "count_stored_trials",
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
    "learn_layers",
    "learn_resources",
    "links",
    "list_calibrations",
    "list_runs",
    "measure",
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
