"""Views: each answer as a page of blocks, the same for a terminal, a pipe, a notebook and a report.

A view is a pure function of an answer, in the file of its verb. `page_of` finds it by the answer's class; the
files of views are imported when they are needed.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from foretrain.answers import Answer
    from foretrain.serving.views.blocks import Page

VIEWS: Mapping[str, str] = {
    "CalibrationAnswer": "calibrate.calibration_page",
    "CalibrationList": "calibrate.calibration_list_page",
    "CampaignAnswer": "measure.campaign_page",
    "CampaignTrials": "measure.trials_page",
    "Comparison": "schedule.comparison_page",
    "ConsumptionAnswer": "resources.resources_page",
    "Convergence": "learn.converge_page",
    "DeviceList": "facts.devices_page",
    "Explanation": "facts.explain_page",
    "FitAnswer": "predict.fit_page",
    "Frontier": "plan.plan_page",
    "GpuLearned": "calibrate.gpu_page",
    "Guide": "guide.guide_page",
    "ImportReport": "facts.price_import_page",
    "Infeasible": "predict.infeasible_page",
    "JobPrediction": "predict.predict_page",
    "LayersAnswer": "learn.layers_page",
    "LearnAnswer": "learn.learn_page",
    "LinkList": "facts.links_page",
    "MachineLearned": "calibrate.machine_page",
    "Measured": "measure.measured_page",
    "ModelList": "facts.models_page",
    "OfferList": "facts.offers_page",
    "Outcome": "schedule.outcome_page",
    "PairAnswer": "resources.pair_page",
    "Profile": "measure.profile_page",
    "RealRun": "schedule.run_page",
    "RentOrBuy": "plan.rent_or_buy_page",
    "ResourcesLearned": "learn.resources_learned_page",
    "RunComparison": "runs.run_comparison_page",
    "RunDetails": "runs.run_page",
    "RunList": "runs.run_list_page",
    "RunsDeleted": "runs.deleted_page",
    "RunsExported": "runs.exported_page",
    "RunsImported": "runs.imported_page",
    "RunsLearned": "calibrate.runs_learned_page",
    "ScalingAnswer": "learn.scaling_page",
    "Schedule": "schedule.schedule_page",
    "TimingsLearned": "calibrate.timings_page",
    "TopologyAnswer": "facts.topology_page",
    "Trace": "resources.trace_page",
    "TraceLearned": "calibrate.trace_learned_page",
    "ValidateAnswer": "runs.validate_page",
}
"""The view of an answer by the answer's class: a file of this folder and its function."""

REPORTS: Mapping[str, str] = {
    "Comparison": "schedule.comparison_report",
    "Frontier": "plan_report.plan_report",
    "Guide": "guide.guide_report",
    "Outcome": "schedule.outcome_report",
}
"""Likewise of answers whose report (`--html`) shows more than their page: charts, sources, long tables."""


def page_of(answer: Answer, **options: Any) -> Page:
    """The page of an answer; `options` are those of its view, as `why` of a plan."""
    page: Page = _function(VIEWS[type(answer).__name__])(answer, **options)
    return page


def report_of(answer: Answer) -> Page:
    """The report of an answer: its page, or a longer one."""
    name = type(answer).__name__
    page: Page = _function(REPORTS.get(name, VIEWS[name]))(answer)
    return page


def _function(view: str) -> Any:
    module, _, function = view.partition(".")
    return getattr(importlib.import_module(f"foretrain.serving.views.{module}"), function)
