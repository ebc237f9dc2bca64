"""The requests of all verbs as plain data: names, numbers and paths, each option declared once.

Fields that several verbs share are grouped in classes of their own; a request is a combination of groups.
`foretrain.decoding` reads them; `foretrain.serving.verbs` asks the core what they describe.
"""

from __future__ import annotations

from foretrain.jobs.options import LengthOptions, RunningOptions
from foretrain.prediction.options import InputOptions
from foretrain.serving.requests.base import Request
from foretrain.serving.requests.by_verb import (
    REQUESTS,
    ConvergeRequest,
    DevicesRequest,
    ExplainRequest,
    GuideModel,
    GuideRequest,
    LearnRequest,
    LinksRequest,
    ModelsRequest,
    OffersRequest,
    PlanRequest,
    PredictRequest,
    RentOrBuyRequest,
    ScalingRequest,
    TraceRequest,
)
from foretrain.serving.requests.given import (
    request_from,
    workload_file_values,
)
from foretrain.serving.requests.measure import MeasureRequest
from foretrain.serving.requests.resources import PairRequest, ResourcesRequest
from foretrain.serving.requests.schedule import PredictedJob, RunRequest, ScheduleRequest, SimulateRequest

__all__ = [
    "REQUESTS",
    "ConvergeRequest",
    "DevicesRequest",
    "ExplainRequest",
    "GuideModel",
    "GuideRequest",
    "InputOptions",
    "LearnRequest",
    "LengthOptions",
    "LinksRequest",
    "MeasureRequest",
    "ModelsRequest",
    "OffersRequest",
    "PairRequest",
    "PlanRequest",
    "PredictRequest",
    "PredictedJob",
    "RentOrBuyRequest",
    "Request",
    "ResourcesRequest",
    "RunRequest",
    "RunningOptions",
    "ScalingRequest",
    "ScheduleRequest",
    "SimulateRequest",
    "TraceRequest",
    "request_from",
    "workload_file_values",
]
