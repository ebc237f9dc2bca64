"""The table of verbs: each one's request, function, views and command, named here and nowhere else.

The command line, the Python verbs, the help, the type stub and the documentation derive from it. It is plain
text, so that `foretrain --help` and `import foretrain` read it without loading what it names. A new verb is a
request class in `requests/FAMILY.py`, a function in `verbs/FAMILY.py`, a view, and a row here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, NamedTuple


class Shown(NamedTuple):
    """How an answer is shown: functions in files of `views/`, as `file.function`.

    `report` is a longer page for `--html`, `chart` what `--plot` draws.
    """

    page: str
    report: str = ""
    chart: str = ""


class VerbEntry(NamedTuple):
    """A verb: `name` in Python and of its function, `family` the file of `requests/` and of `verbs/`.

    `answers` are the classes it introduces, each with its home below `foretrain`. `words` are those of the
    command, the name unless given.
    """

    name: str
    family: str
    request: str
    summary: str
    answers: Mapping[str, Shown] = {}
    words: str = ""

    @property
    def command(self) -> str:
        """The words after `foretrain`: `rent-or-buy`, `runs list`."""
        return self.words or self.name.replace("_", "-")

    @property
    def function(self) -> Callable[..., Any]:
        """From a request to an answer."""
        function: Callable[..., Any] = load(f"foretrain.serving.verbs.{self.family}.{self.name}")
        return function

    @property
    def request_class(self) -> type[Any]:
        """What it takes, a subclass of `requests.Request`."""
        cls: type[Any] = load(f"foretrain.serving.requests.{self.family}.{self.request}")
        return cls


def load(path: str) -> Any:
    """What `package.module.name` names."""
    module, _, name = path.rpartition(".")
    return getattr(import_module(module), name)


_VERBS = (
    VerbEntry(
        "predict", "predicting", "PredictRequest",
        "Predict time, memory and cost of a training job on given hardware.",
        {
            "jobs.predict.JobPrediction": Shown("predict.predict_page", chart="charts.step_chart"),
            "answers.Infeasible": Shown("predict.infeasible_page"),
        },
    ),
    VerbEntry(
        "fit", "predicting", "FitRequest",
        "Answer whether a training step fits into memory, and what would make it fit.",
        {"prediction.answer.FitAnswer": Shown("predict.fit_page")},
    ),
    VerbEntry(
        "plan", "planning", "PlanRequest",
        "Find the best machines to rent for a job.",
        {"planning.frontier.Frontier": Shown("plan.plan_page", "plan_report.plan_report", "plan.plan_chart")},
    ),
    VerbEntry(
        "size", "planning", "SizeRequest",
        "Find the model size and tokens of the lowest loss within a budget.",
        {"planning.size.SizeAnswer": Shown("size.size_page", chart="size.size_chart")},
    ),
    VerbEntry(
        "trace", "predicting", "TraceRequest",
        "Show the parameters, FLOP, memory traffic and layers of a training step.",
        {"workloads.summary.Trace": Shown("resources.trace_page")},
    ),
    VerbEntry(
        "scaling", "planning", "ScalingRequest",
        "Predict step times of other placements from a few timings.",
        {"learning.scaling.answer.ScalingAnswer":
         Shown("learn.scaling_page", chart="charts.step_scaling_chart")},
    ),
    VerbEntry(
        "resources", "resources", "ResourcesRequest",
        "Predict resource usage over a step: bursts and idle gaps.",
        {"prediction.resources.consumption.ConsumptionAnswer":
         Shown("resources.resources_page", chart="charts.consumption_chart")},
    ),
    VerbEntry(
        "pair", "resources", "PairRequest",
        "Predict the slowdown of two jobs that share a device.",
        {"prediction.resources.pairing.PairAnswer":
         Shown("resources.pair_page", chart="charts.pair_chart")},
    ),
    VerbEntry(
        "converge", "learning", "ConvergeRequest",
        "Predict when a training run reaches its target metric.",
        {"convergence.forecast.Convergence": Shown("learn.converge_page", chart="charts.fan_chart")},
    ),
    VerbEntry(
        "measure", "measuring", "MeasureRequest",
        "Run a training command and measure its steps and resource usage.",
        {"serving.verbs.measuring.Measured": Shown("measure.measured_page", chart="charts.measured_chart")},
    ),
    VerbEntry(
        "campaign", "measuring", "CampaignRequest",
        "Run many short training experiments and store the results.",
        {
            "serving.verbs.measuring.CampaignTrials": Shown("measure.trials_page"),
            "serving.verbs.measuring.CampaignAnswer": Shown("measure.campaign_page"),
        },
    ),
    VerbEntry(
        "calibrate", "calibrating", "CalibrateRequest",
        "Calibrate predictions with your own timings or this machine.",
        {
            "serving.verbs.calibrating.MachineLearned": Shown("calibrate.machine_page"),
            "serving.verbs.calibrating.GpuLearned": Shown("calibrate.gpu_page"),
            "serving.verbs.calibrating.TimingsLearned": Shown("calibrate.timings_page"),
            "serving.verbs.calibrating.RunsLearned": Shown("calibrate.runs_learned_page"),
            "serving.verbs.calibrating.TraceLearned": Shown("calibrate.trace_learned_page"),
        },
    ),
    VerbEntry(
        "list_calibrations", "calibrating", "ListCalibrationsRequest",
        "List all calibrations.",
        {"serving.verbs.calibrating.CalibrationList": Shown("calibrate.calibration_list_page")},
        words="calibrate list",
    ),
    VerbEntry(
        "show_calibration", "calibrating", "CalibrationRequest",
        "Show a calibration and what it was fitted on.",
        {"serving.verbs.calibrating.CalibrationAnswer": Shown("calibrate.calibration_page")},
        words="calibrate show",
    ),
    VerbEntry(
        "forget_calibration", "calibrating", "CalibrationRequest",
        "Remove a calibration and its effect on predictions.",
        words="calibrate forget",
    ),
    VerbEntry(
        "export_calibration", "calibrating", "ExportCalibrationRequest",
        "Write a calibration to a portable file.",
        words="calibrate export",
    ),
    VerbEntry(
        "import_calibration", "calibrating", "ImportCalibrationRequest",
        "Validate and store a calibration file.",
        words="calibrate import",
    ),
    VerbEntry(
        "learn", "learning", "LearnRequest",
        "Fit regressions to your own timings, with out-of-sample validation.",
        {"learning.regression.learn.LearnAnswer": Shown("learn.learn_page", chart="charts.residuals_chart")},
    ),
    VerbEntry(
        "learn_layers", "learning", "LearnLayersRequest",
        "Fit one line t = b0 + b1 c per layer type to profiles, and predict whole networks.",
        {"learning.regression.layers.LayersAnswer": Shown("learn.layers_page")},
        words="learn layers",
    ),
    VerbEntry(
        "learn_resources", "learning", "LearnResourcesRequest",
        "Train the Inspector, which predicts bursts and idle gaps, on your runs.",
        {"serving.verbs.learning.ResourcesLearned": Shown("learn.resources_learned_page")},
        words="learn resources",
    ),
    VerbEntry(
        "profile", "measuring", "ProfileRequest",
        "Compare measured and predicted times of operators and layers.",
        {"measuring.profiling.comparison.Profile": Shown("measure.profile_page")},
    ),
    VerbEntry(
        "list_devices", "listing", "DevicesRequest",
        "List GPUs and CPUs with peak performance, memory and links.",
        {"serving.verbs.listing.DeviceList": Shown("facts.devices_page")},
        words="devices",
    ),
    VerbEntry(
        "add_device", "listing", "AddDeviceRequest",
        "Check a device file of your own and keep it.",
        {"facts.own_facts.OwnDevice": Shown("facts.own_device_page")},
        words="devices add",
    ),
    VerbEntry(
        "forget_device", "listing", "ForgetDeviceRequest",
        "Remove a device that you added.",
        words="devices forget",
    ),
    VerbEntry(
        "list_models", "listing", "ModelsRequest",
        "List the models of the zoo and the supported model formats.",
        {"serving.verbs.listing.ModelList": Shown("facts.models_page")},
        words="models",
    ),
    VerbEntry(
        "list_links", "listing", "LinksRequest",
        "List links and networks with bandwidths and sources.",
        {
            "serving.verbs.listing.LinkList": Shown("facts.links_page"),
            "facts.topology.TopologyAnswer": Shown("facts.topology_page"),
        },
        words="links",
    ),
    VerbEntry(
        "list_offers", "listing", "OffersRequest",
        "List rental prices of cloud machines.",
        {
            "serving.verbs.listing.OfferList": Shown("facts.offers_page"),
            "facts.price_files.ImportReport": Shown("facts.price_import_page"),
        },
        words="offers",
    ),
    VerbEntry(
        "add_offers", "listing", "AddOffersRequest",
        "Check a file of your own prices and keep them.",
        {"facts.own_facts.OwnOffers": Shown("facts.own_offers_page")},
        words="offers add",
    ),
    VerbEntry(
        "forget_offers", "listing", "ForgetOffersRequest",
        "Remove prices that you added.",
        words="offers forget",
    ),
    VerbEntry(
        "guide", "planning", "GuideRequest",
        "Compare hardware for one or more models across batch sizes.",
        {"planning.guide.guide.Guide": Shown("guide.guide_page", report="guide.guide_report")},
    ),
    VerbEntry(
        "rent_or_buy", "planning", "RentOrBuyRequest",
        "Compute the break-even point between renting and buying.",
        {"planning.rent_or_buy.RentOrBuy": Shown("plan.rent_or_buy_page", chart="charts.cost_chart")},
    ),
    VerbEntry(
        "explain", "listing", "ExplainRequest",
        "Show all facts about a device, link, offer or source, with provenance.",
        {"facts.explanation.Explanation": Shown("facts.explain_page")},
    ),
    VerbEntry(
        "schedule", "scheduling", "ScheduleRequest",
        "Decide which jobs to run now, and forecast the rest.",
        {"scheduling.forecast.Schedule": Shown("schedule.schedule_page")},
    ),
    VerbEntry(
        "simulate", "scheduling", "SimulateRequest",
        "Simulate jobs on a cluster under one or more scheduling policies.",
        {
            "scheduling.accounting.Outcome": Shown(
                "schedule.outcome_page", "schedule.outcome_report", "schedule_charts.schedule_chart"
            ),
            "scheduling.accounting.Comparison": Shown(
                "schedule.comparison_page", "schedule.comparison_report", "schedule_charts.comparison_chart"
            ),
        },
    ),
    VerbEntry(
        "run", "scheduling", "RunRequest",
        "Run scheduled jobs on this machine, Ray or Slurm.",
        {"backends.answer.RealRun": Shown("schedule.run_page")},
    ),
    VerbEntry(
        "list_runs", "stored_runs", "ListRunsRequest",
        "List runs, the newest first.",
        {"serving.verbs.stored_runs.RunList": Shown("runs.run_list_page")},
        words="runs list",
    ),
    VerbEntry(
        "show_run", "stored_runs", "ShowRunRequest",
        "Show a run: steps, resources, prediction and measurement.",
        {"serving.verbs.stored_runs.RunDetails": Shown("runs.run_page")},
        words="runs show",
    ),
    VerbEntry(
        "compare_runs", "stored_runs", "CompareRunsRequest",
        "Compare runs side by side, with ratios to the first.",
        {"serving.verbs.stored_runs.RunComparison": Shown("runs.run_comparison_page")},
        words="runs compare",
    ),
    VerbEntry(
        "export_runs", "stored_runs", "ExportRunsRequest",
        "Write runs to a CSV, Parquet or JSON file.",
        {"serving.verbs.stored_runs.RunsExported": Shown("runs.exported_page")},
        words="runs export",
    ),
    VerbEntry(
        "import_runs", "stored_runs", "ImportRunsRequest",
        "Add the runs of a file to the store.",
        {"serving.verbs.stored_runs.RunsImported": Shown("runs.imported_page")},
        words="runs import",
    ),
    VerbEntry(
        "delete_runs", "stored_runs", "DeleteRunsRequest",
        "Delete runs from the store.",
        {"serving.verbs.stored_runs.RunsDeleted": Shown("runs.deleted_page")},
        words="runs delete",
    ),
    VerbEntry(
        "validate", "stored_runs", "ValidateRequest",
        "Compare predictions with your stored runs.",
        {"serving.verbs.stored_runs.ValidateAnswer": Shown("runs.validate_page")},
    ),
)  # fmt: skip
VERBS: dict[str, VerbEntry] = {verb.name: verb for verb in _VERBS}
"""By name, in the order of `foretrain --help`."""

FAMILIES: Mapping[str, tuple[str, str]] = {
    "runs": (
        "List, show, compare, export, import and delete stored runs.",
        "`foretrain measure` and `foretrain campaign` store runs; `foretrain validate` compares them with "
        "predictions. The environment variable FORETRAIN_STORE names the store: an SQLite file or a "
        "postgresql:// URL.\n\n\b\nExamples:\n  foretrain runs list --json\n  foretrain runs show 3f2a\n"
        "  foretrain runs import timings.csv",
    ),
    "calibrate": (
        "",
        "Calibrations are stored in your data directory and correct later predictions for the same model or "
        "device.",
    ),
    "devices": ("", "Devices that you add are kept in your data directory and shown as yours."),
    "offers": (
        "",
        "Prices that you import or add are kept in your data directory; those you add are shown as yours.",
    ),
    "learn": ("", "Learns run times from your own timings, and resource usage from your stored runs."),
}
"""First words that several commands share: summary, unless a verb has that name, and the text of the help."""


def first_words() -> dict[str, str]:
    """The commands by their first word, each with its line in `foretrain --help`."""
    summaries: dict[str, str] = {}
    for verb in VERBS.values():
        word = verb.command.partition(" ")[0]
        summaries.setdefault(word, verb.summary if word == verb.command else FAMILIES[word][0])
    return summaries


def shown() -> dict[str, Shown]:
    """How answers are shown, by the name of their class."""
    return {path.rpartition(".")[2]: how for verb in VERBS.values() for path, how in verb.answers.items()}


def homes() -> dict[str, str]:
    """Where the requests and the answers of all verbs live, by the name of their class."""
    requests = {each.request: f"serving.requests.{each.family}.{each.request}" for each in VERBS.values()}
    answers = {path.rpartition(".")[2]: path for verb in VERBS.values() for path in verb.answers}
    return {name: f"foretrain.{path}" for name, path in (requests | answers).items()}
