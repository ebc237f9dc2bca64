"""Every request that a workload file or an option may be meant for."""

from __future__ import annotations

from foretrain.serving.requests.base import Request
from foretrain.serving.requests.facts import (
    DevicesRequest,
    ExplainRequest,
    LinksRequest,
    ModelsRequest,
    OffersRequest,
)
from foretrain.serving.requests.learn import ConvergeRequest, LearnRequest
from foretrain.serving.requests.measure import MeasureRequest
from foretrain.serving.requests.plan import GuideRequest, PlanRequest, RentOrBuyRequest, ScalingRequest
from foretrain.serving.requests.predict import FitRequest, PredictRequest, TraceRequest
from foretrain.serving.requests.resources import PairRequest, ResourcesRequest
from foretrain.serving.requests.schedule import RunRequest, ScheduleRequest, SimulateRequest

REQUESTS: tuple[type[Request], ...] = (
    PredictRequest,
    FitRequest,
    PlanRequest,
    TraceRequest,
    GuideRequest,
    ConvergeRequest,
    ScalingRequest,
    LearnRequest,
    RentOrBuyRequest,
    OffersRequest,
    ExplainRequest,
    DevicesRequest,
    ModelsRequest,
    LinksRequest,
    MeasureRequest,
    ResourcesRequest,
    PairRequest,
    SimulateRequest,
    ScheduleRequest,
    RunRequest,
)
