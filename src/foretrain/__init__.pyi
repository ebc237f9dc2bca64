"""The public names of foretrain, as type checkers and editors read them.

Written by `scripts/write_keywords.py` from the table of verbs and from the requests, whose options are
declared on the nouns of the core.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack

import torch

from foretrain.answers import Answer as Answer
from foretrain.answers import Infeasible as Infeasible
from foretrain.backends.answer import RealRun as RealRun
from foretrain.convergence.forecast import Convergence as Convergence
from foretrain.errors import BackendFailed as BackendFailed
from foretrain.errors import ForetrainError as ForetrainError
from foretrain.errors import InvalidData as InvalidData
from foretrain.errors import InvalidRequest as InvalidRequest
from foretrain.errors import MissingData as MissingData
from foretrain.errors import UnknownName as UnknownName
from foretrain.estimates import Estimate as Estimate
from foretrain.estimates import Part as Part
from foretrain.estimates import Quantiles as Quantiles
from foretrain.facts.devices import Device as Device
from foretrain.facts.devices import device as device
from foretrain.facts.devices import devices as devices
from foretrain.facts.explanation import Explanation as Explanation
from foretrain.facts.hardware import Cluster as Cluster
from foretrain.facts.hardware import Hardware as Hardware
from foretrain.facts.offers import Offer as Offer
from foretrain.facts.offers import search as search_offers
from foretrain.facts.options import OfferQuery as OfferQuery
from foretrain.facts.own_facts import OwnDevice as OwnDevice
from foretrain.facts.own_facts import OwnOffers as OwnOffers
from foretrain.facts.price_files import ImportReport as ImportReport
from foretrain.facts.topology import TopologyAnswer as TopologyAnswer
from foretrain.jobs.epochs import Epoch as Epoch
from foretrain.jobs.job import Job as Job
from foretrain.jobs.predict import JobPrediction as JobPrediction
from foretrain.learning.regression.cost_model import price_jobs as price_jobs
from foretrain.learning.regression.layers import LayersAnswer as LayersAnswer
from foretrain.learning.regression.learn import LearnAnswer as LearnAnswer
from foretrain.learning.regression.model import LearnedModel as LearnedModel
from foretrain.learning.regression.model import load as load_model
from foretrain.learning.scaling.answer import ScalingAnswer as ScalingAnswer
from foretrain.measuring.profiling.comparison import Profile as Profile
from foretrain.measuring.watching.step_hook import step as step
from foretrain.measuring.watching.step_hook import timed_input as timed_input
from foretrain.planning.frontier import Frontier as Frontier
from foretrain.planning.frontier import Plan as Plan
from foretrain.planning.guide.guide import Guide as Guide
from foretrain.planning.rent_or_buy import RentOrBuy as RentOrBuy
from foretrain.planning.size import SizeAnswer as SizeAnswer
from foretrain.planning.speedup import TimeAndCost as TimeAndCost
from foretrain.planning.speedup import speedup_per_fold_of_cost as speedup_per_fold_of_cost
from foretrain.prediction.answer import FitAnswer as FitAnswer
from foretrain.prediction.answer import Prediction as Prediction
from foretrain.prediction.resources.consumption import ConsumptionAnswer as ConsumptionAnswer
from foretrain.prediction.resources.pairing import PairAnswer as PairAnswer
from foretrain.scheduling.accounting import Comparison as Comparison
from foretrain.scheduling.accounting import Outcome as Outcome
from foretrain.scheduling.forecast import Schedule as Schedule
from foretrain.serving.requests.calibrating import CalibrateRequest as CalibrateRequest
from foretrain.serving.requests.calibrating import CalibrationRequest as CalibrationRequest
from foretrain.serving.requests.calibrating import ExportCalibrationRequest as ExportCalibrationRequest
from foretrain.serving.requests.calibrating import ImportCalibrationRequest as ImportCalibrationRequest
from foretrain.serving.requests.calibrating import ListCalibrationsRequest as ListCalibrationsRequest
from foretrain.serving.requests.learning import ConvergeRequest as ConvergeRequest
from foretrain.serving.requests.learning import LearnLayersRequest as LearnLayersRequest
from foretrain.serving.requests.learning import LearnRequest as LearnRequest
from foretrain.serving.requests.learning import LearnResourcesRequest as LearnResourcesRequest
from foretrain.serving.requests.listing import AddDeviceRequest as AddDeviceRequest
from foretrain.serving.requests.listing import AddOffersRequest as AddOffersRequest
from foretrain.serving.requests.listing import DevicesRequest as DevicesRequest
from foretrain.serving.requests.listing import ExplainRequest as ExplainRequest
from foretrain.serving.requests.listing import ForgetDeviceRequest as ForgetDeviceRequest
from foretrain.serving.requests.listing import ForgetOffersRequest as ForgetOffersRequest
from foretrain.serving.requests.listing import LinksRequest as LinksRequest
from foretrain.serving.requests.listing import ModelsRequest as ModelsRequest
from foretrain.serving.requests.listing import OffersRequest as OffersRequest
from foretrain.serving.requests.measuring import CampaignRequest as CampaignRequest
from foretrain.serving.requests.measuring import MeasureRequest as MeasureRequest
from foretrain.serving.requests.measuring import ProfileRequest as ProfileRequest
from foretrain.serving.requests.planning import GuideRequest as GuideRequest
from foretrain.serving.requests.planning import PlanRequest as PlanRequest
from foretrain.serving.requests.planning import RentOrBuyRequest as RentOrBuyRequest
from foretrain.serving.requests.planning import ScalingRequest as ScalingRequest
from foretrain.serving.requests.planning import SizeRequest as SizeRequest
from foretrain.serving.requests.predicting import FitRequest as FitRequest
from foretrain.serving.requests.predicting import PredictRequest as PredictRequest
from foretrain.serving.requests.predicting import TraceRequest as TraceRequest
from foretrain.serving.requests.resources import PairRequest as PairRequest
from foretrain.serving.requests.resources import ResourcesRequest as ResourcesRequest
from foretrain.serving.requests.scheduling import RunRequest as RunRequest
from foretrain.serving.requests.scheduling import ScheduleRequest as ScheduleRequest
from foretrain.serving.requests.scheduling import SimulateRequest as SimulateRequest
from foretrain.serving.requests.stored_runs import CompareRunsRequest as CompareRunsRequest
from foretrain.serving.requests.stored_runs import DeleteRunsRequest as DeleteRunsRequest
from foretrain.serving.requests.stored_runs import ExportRunsRequest as ExportRunsRequest
from foretrain.serving.requests.stored_runs import ImportRunsRequest as ImportRunsRequest
from foretrain.serving.requests.stored_runs import ListRunsRequest as ListRunsRequest
from foretrain.serving.requests.stored_runs import ShowRunRequest as ShowRunRequest
from foretrain.serving.requests.stored_runs import ValidateRequest as ValidateRequest
from foretrain.serving.verbs.calibrating import CalibrationAnswer as CalibrationAnswer
from foretrain.serving.verbs.calibrating import CalibrationList as CalibrationList
from foretrain.serving.verbs.calibrating import GpuLearned as GpuLearned
from foretrain.serving.verbs.calibrating import MachineLearned as MachineLearned
from foretrain.serving.verbs.calibrating import RunsLearned as RunsLearned
from foretrain.serving.verbs.calibrating import TimingsLearned as TimingsLearned
from foretrain.serving.verbs.calibrating import TraceLearned as TraceLearned
from foretrain.serving.verbs.learning import ResourcesLearned as ResourcesLearned
from foretrain.serving.verbs.listing import DeviceList as DeviceList
from foretrain.serving.verbs.listing import LinkList as LinkList
from foretrain.serving.verbs.listing import ModelList as ModelList
from foretrain.serving.verbs.listing import OfferList as OfferList
from foretrain.serving.verbs.measuring import CampaignAnswer as CampaignAnswer
from foretrain.serving.verbs.measuring import CampaignTrials as CampaignTrials
from foretrain.serving.verbs.measuring import Measured as Measured
from foretrain.serving.verbs.stored_runs import RunComparison as RunComparison
from foretrain.serving.verbs.stored_runs import RunDetails as RunDetails
from foretrain.serving.verbs.stored_runs import RunList as RunList
from foretrain.serving.verbs.stored_runs import RunsDeleted as RunsDeleted
from foretrain.serving.verbs.stored_runs import RunsExported as RunsExported
from foretrain.serving.verbs.stored_runs import RunsImported as RunsImported
from foretrain.serving.verbs.stored_runs import ValidateAnswer as ValidateAnswer
from foretrain.workloads.summary import Trace as Trace
from foretrain.workloads.workload import Workload as Workload

__all__ = [
    "AddDeviceRequest",
    "AddOffersRequest",
    "Answer",
    "BackendFailed",
    "CalibrateRequest",
    "CalibrationAnswer",
    "CalibrationList",
    "CalibrationRequest",
    "CampaignAnswer",
    "CampaignRequest",
    "CampaignTrials",
    "Cluster",
    "CompareRunsRequest",
    "Comparison",
    "ConsumptionAnswer",
    "ConvergeRequest",
    "Convergence",
    "DeleteRunsRequest",
    "Device",
    "DeviceList",
    "DevicesRequest",
    "Epoch",
    "Estimate",
    "ExplainRequest",
    "Explanation",
    "ExportCalibrationRequest",
    "ExportRunsRequest",
    "FitAnswer",
    "FitRequest",
    "ForetrainError",
    "ForgetDeviceRequest",
    "ForgetOffersRequest",
    "Frontier",
    "GpuLearned",
    "Guide",
    "GuideRequest",
    "Hardware",
    "ImportCalibrationRequest",
    "ImportReport",
    "ImportRunsRequest",
    "Infeasible",
    "InvalidData",
    "InvalidRequest",
    "Job",
    "JobPrediction",
    "LayersAnswer",
    "LearnAnswer",
    "LearnLayersRequest",
    "LearnRequest",
    "LearnResourcesRequest",
    "LearnedModel",
    "LinkList",
    "LinksRequest",
    "ListCalibrationsRequest",
    "ListRunsRequest",
    "MachineLearned",
    "MeasureRequest",
    "Measured",
    "MissingData",
    "ModelList",
    "ModelsRequest",
    "Offer",
    "OfferList",
    "OfferQuery",
    "OffersRequest",
    "Outcome",
    "OwnDevice",
    "OwnOffers",
    "PairAnswer",
    "PairRequest",
    "Part",
    "Plan",
    "PlanRequest",
    "PredictRequest",
    "Prediction",
    "Profile",
    "ProfileRequest",
    "Quantiles",
    "RealRun",
    "RentOrBuy",
    "RentOrBuyRequest",
    "ResourcesLearned",
    "ResourcesRequest",
    "RunComparison",
    "RunDetails",
    "RunList",
    "RunRequest",
    "RunsDeleted",
    "RunsExported",
    "RunsImported",
    "RunsLearned",
    "ScalingAnswer",
    "ScalingRequest",
    "Schedule",
    "ScheduleRequest",
    "ShowRunRequest",
    "SimulateRequest",
    "SizeAnswer",
    "SizeRequest",
    "TimeAndCost",
    "TimingsLearned",
    "TopologyAnswer",
    "Trace",
    "TraceLearned",
    "TraceRequest",
    "UnknownName",
    "ValidateAnswer",
    "ValidateRequest",
    "Workload",
    "__version__",
    "add_device",
    "add_offers",
    "calibrate",
    "campaign",
    "compare_runs",
    "converge",
    "delete_runs",
    "device",
    "devices",
    "explain",
    "export_calibration",
    "export_runs",
    "fit",
    "forget_calibration",
    "forget_device",
    "forget_offers",
    "guide",
    "import_calibration",
    "import_runs",
    "learn",
    "learn_layers",
    "learn_resources",
    "list_calibrations",
    "list_devices",
    "list_links",
    "list_models",
    "list_offers",
    "list_runs",
    "load_model",
    "measure",
    "pair",
    "plan",
    "predict",
    "price_jobs",
    "profile",
    "rent_or_buy",
    "resources",
    "run",
    "scaling",
    "schedule",
    "search_offers",
    "show_calibration",
    "show_run",
    "simulate",
    "size",
    "speedup_per_fold_of_cost",
    "step",
    "timed_input",
    "trace",
    "validate",
]
__version__: str

class _ConfigOptionKeywords(TypedDict, total=False):
    """The training configuration whose entries are the defaults of a request."""

    from_config: str | Path | None
    """Training configuration to take model and options from: Hugging Face TrainingArguments, axolotl,
    torchtitan, Megatron-LM, DeepSpeed or accelerate. Given options take precedence."""

class _BatchOptionKeywords(TypedDict, total=False):
    """The batch of each device."""

    batch: int | None
    """Batch size per device."""

class _SequenceOptionKeywords(TypedDict, total=False):
    """The length of a sample of tokens."""

    seq_len: int | None
    """Tokens per sample."""

class _SampleOptionsKeywords(_SequenceOptionKeywords, total=False):
    """Sizes of a sample."""

    image_size: int | None
    """Image height and width in pixels."""

class _StepOptionsKeywords(TypedDict, total=False):
    """How one training step is run."""

    precision: Literal["fp32", "tf32", "fp16", "bf16", "fp8"] | None
    """Numeric precision: fp32, tf32, fp16 or bf16 (mixed precision) or fp8 (default: device default)."""
    optimizer: (
        Literal[
            "sgd",
            "momentum",
            "nesterov",
            "adam",
            "adamw",
            "adamw-fused",
            "nadam",
            "radam",
            "adamax",
            "adagrad",
            "adadelta",
            "rmsprop",
            "adafactor",
            "lion",
            "muon",
            "adamw-8bit",
            "lion-8bit",
            "paged-adamw",
            "paged-adamw-8bit",
            "paged-lion-8bit",
        ]
        | None
    )
    """Optimizer: sgd, momentum, adam, adamw (default), muon, lion, adafactor, adamw-8bit, paged-adamw ..."""
    attention: Literal["eager", "sdpa", "flash", "flash1", "flash2", "flash3", "cudnn"] | None
    """Attention kernel: eager, sdpa, flash1, flash2 (flash), flash3 or cudnn (default: `framework` default,
    else the kernel PyTorch selects on the GPU)."""
    channels_last: bool
    """Store images in NHWC (channels-last) memory format."""
    compile: bool
    """Compile the model with torch.compile."""
    checkpoint_activations: bool
    """Recompute activations during the backward pass."""
    selective_checkpointing: bool
    """Recompute activations except those of matrix products and attention."""
    gradient_release: bool
    """Apply and free each gradient during the backward pass, as soon as it is complete."""
    offload: str | Sequence[str]
    """State to offload to host memory: optimizer (the update then runs on the CPU), parameters,
    activations."""
    cuda_graphs: bool
    """Capture the step as a CUDA graph and replay it."""
    weights: Literal["fp32", "fp16", "bf16"] | None
    """Precision of stored weights (default: fp32 for ddp; half for `lora`, `master_weights`, ZeRO, FSDP and
    model-parallel strategies)."""
    master_weights: bool
    """Keep FP32 copies of half-precision weights in the optimizer (Megatron)."""
    gradients: Literal["fp32", "fp16", "bf16"] | None
    """Precision of gradient accumulation (default: that of `weights`)."""
    autocast: bool | None
    """Use autocast (default, unless all weights are converted)."""
    framework: str | None
    """Training framework: pytorch, megatron, nemo, deepspeed, megatron-deepspeed, nanotron, composer,
    hf-trainer, torchtitan or keras. Sets fused kernels, launch overhead and recomputation (default: megatron
    with tp, pp, cp or ep, else pytorch)."""
    fp8_scaling: Literal["delayed", "current", "block"] | None
    """FP8 scaling: delayed (from earlier steps), current (per tensor) or block (per 128 elements; MXFP8, per
    32, on Blackwell) (default: `framework` default)."""
    software_year: int | None
    """Release year of PyTorch and its libraries; selects the kernels behind `attention` sdpa and flash
    (default: latest)."""

class _TrainingOptionsKeywords(_SampleOptionsKeywords, _StepOptionsKeywords, total=False):
    """How a model is trained."""

    lora: str | None
    """Train LoRA adapters only, e.g. r=16, r=16,targets=all-linear, r=16,dora, r=16,half,
    r=16,quantised[,double]."""

class _PhaseOptionsKeywords(TypedDict, total=False):
    """Which parts of a training step are left out."""

    forward_only: bool
    """Run the forward pass only."""
    no_optimizer: bool
    """Skip the optimizer step."""

class _WorkloadRequestKeywords(
    _BatchOptionKeywords, _TrainingOptionsKeywords, _PhaseOptionsKeywords, total=False
):
    """A model by name or file, its sizes, and how a step is run."""

    trace: Literal["meta", "real"] | None
    """How to trace the model: meta (default), shapes only; real, run it on this CPU with the example
    inputs."""

class _HardwareOptionKeywords(TypedDict, total=False):
    """The hardware to train on."""

    on: str
    """Hardware: DEVICE, DEVICE:COUNT, DEVICE:PER_NODExNODES, PROVIDER:INSTANCE[:NODES] or a cluster
    FILE.yaml."""

class _TopologyOptionKeywords(TypedDict, total=False):
    """How the GPUs of a node are joined, as the driver reports it."""

    topology: str | Path | None
    """File with the output of `nvidia-smi topo -m`: how GPUs of a node are joined, in place of `links`."""

class _BatchDivisionKeywords(TypedDict, total=False):
    """The batch of all devices, and the parts it is trained in."""

    global_batch: int | None
    """Batch size across all devices; replaces `batch`."""
    micro_batches: int | None
    """Micro-batches per step and replica (gradient accumulation or pipeline)."""

class _NetworkOptionsKeywords(TypedDict, total=False):
    """How devices are connected, where facts do not know it or something else is assumed."""

    links: str | None
    """Links within a node, e.g. nvlink2:6 or pcie4-x16@TOPOLOGY (pcie-switch, two-bridges, host-memory,
    host-bridge)."""
    network: str | None
    """Network between nodes, e.g. infiniband-ndr:8."""

class _StrategyOptionsKeywords(_BatchDivisionKeywords, _NetworkOptionsKeywords, total=False):
    """By which strategy a step runs on many devices."""

    strategy: str
    """Parallel strategy: ddp, zero1, zero2, zero3, fsdp, hsdp, dp, ps-sync, ps-async, ps-ksync=K,
    ps-kbatchsync=K, ps-kasync=K, ps-kbatchasync=K, degrees such as tp=T,cp=C,pp=P, or auto."""

class _ParallelismKeywords(_StrategyOptionsKeywords, total=False):
    """How a step is parallelised; what is None is chosen."""

    min_batch: int | None
    """Minimum batch size per device on a heterogeneous cluster."""
    jitter: float | None
    """Coefficient of variation of step times across devices (default 0.05; 0 disables)."""

class _CostModelOptionsKeywords(TypedDict, total=False):
    """What prices operators and steps."""

    cost_model: str
    """Cost model: foretrain, roofline, per-layer, end-to-end (requires `timings`), a FILE of your own
    timings, or a model saved by learn (.json)."""
    timings: str | Path | None
    """Your own timings, used to fit `cost_model` end-to-end."""

class _InputOptionsKeywords(TypedDict, total=False):
    """Where samples come from. Without a data set, inputs are in pinned host memory."""

    dataset: str | None
    """Include data loading from this data set: imagenet-jpeg, cifar10, mnist, tokens or synthetic."""
    storage: str
    """Storage of the data set: nvme, sata-ssd, hdd, network-disk."""
    loader_workers: int
    """Number of data-loading processes; 0 loads in the training process."""
    prefetch: bool
    """Overlap data loading with training."""

class _LogContextKeywords(TypedDict, total=False):
    """What is known of the run that wrote a log, besides the log."""

    planned_steps: float | None
    """Planned length of the run that wrote `log`, in the unit of the log."""
    schedule: str | None
    """Learning-rate schedule of `log`: linear, linear:0.4, cosine, step:0.5,0.75, constant."""
    history: str | Path | None
    """Folder with logs of earlier runs of the same task and metric."""

class _LengthOptionsKeywords(_LogContextKeywords, total=False):
    """The length of a job, given by at most one of `steps`, `epochs`, `tokens` and `log`."""

    samples: int | None
    """Samples per epoch."""
    epochs: float | None
    """Number of epochs; requires `samples`."""
    steps: int | None
    """Number of training steps."""
    tokens: float | str | None
    """Number of tokens to train on, e.g. 15T, 300B or 100M."""
    target: str | None
    """Train until METRIC reaches VALUE, extrapolated from `log`."""
    log: str | Path | None
    """Training log used to predict the steps to `target`."""
    epochs_at: str | Sequence[str | tuple[int, float]]
    """Epochs to target at a given global batch size, for two or more of them; replaces `epochs`."""
    critical_batch: float | None
    """Critical batch size: the global batch that needs twice the minimum number of epochs."""
    reference_batch: int | None
    """Global batch size for which `epochs`, `steps` or `log` are given."""

class _EvaluationOptionsKeywords(TypedDict, total=False):
    """Evaluations in the course of a job. Without `eval_every` there is one at its end."""

    eval_samples: int | None
    """Samples per evaluation."""
    eval_every: int | None
    """Steps between evaluations (default: one epoch, or the whole job)."""

class _RunningOptionsKeywords(_EvaluationOptionsKeywords, total=False):
    """How a job is run: start-up, checkpoints, evaluations, interruptions."""

    startup: float | str | None
    """Time from requesting machines to the first step."""
    checkpoint_every: float | str | None
    """Training time between checkpoints (default: the best interval)."""
    checkpoint_rate: float | str | None
    """Write bandwidth of checkpoints, e.g. 1GB/s."""
    spot: bool
    """Use spot machines, with spot prices and interruptions."""
    interruptions_per_day: float | None
    """Interruptions per machine and day."""

class _BillingOptionsKeywords(TypedDict, total=False):
    """What machines cost, and where they are."""

    usd_per_hour: float | str | None
    """Total price of all machines per hour (default: price of the offer)."""
    region: str | None
    """Where the job runs: cloud region, country or US state."""

class _PredictRequestKeywords(
    _ConfigOptionKeywords,
    _WorkloadRequestKeywords,
    _HardwareOptionKeywords,
    _TopologyOptionKeywords,
    _ParallelismKeywords,
    _CostModelOptionsKeywords,
    _InputOptionsKeywords,
    _LengthOptionsKeywords,
    _RunningOptionsKeywords,
    _BillingOptionsKeywords,
    total=False,
):
    """What a training step, and the whole job, take on given hardware."""

    power_limit: float | None
    """Power limit per device in watts (default: data sheet). A lower limit slows down matrix products."""
    advice: bool
    """Search for changes that make the step faster."""

class _FitRequestKeywords(
    _ConfigOptionKeywords,
    _WorkloadRequestKeywords,
    _HardwareOptionKeywords,
    _TopologyOptionKeywords,
    _ParallelismKeywords,
    total=False,
):
    """Whether a training step fits into memory."""

class _BatchLimitsKeywords(_BatchOptionKeywords, _BatchDivisionKeywords, total=False):
    """A fixed batch of each device and step, a fixed global batch, or any up to `max_global_batch`."""

    max_global_batch: int | None
    """Maximum global batch size."""

class _LimitsKeywords(TypedDict, total=False):
    """Deadline (seconds) and budget (USD) of a job, and the probability with which they must be met."""

    deadline: float | str | None
    """Maximum duration of the job, e.g. 12h or 2d."""
    budget: float | str | None
    """Maximum cost, e.g. 200usd or $1,500."""
    confidence: float
    """Required probability of meeting `deadline` and `budget`, e.g. 0.9."""

class _PlaceOptionsKeywords(TypedDict, total=False):
    """Where machines may be rented; everywhere unless limited."""

    cloud: str | Sequence[str]
    """Only these clouds, e.g. aws,gcp."""
    region: str | Sequence[str]
    """Only these regions, comma-separated."""

class _MachineOptionsKeywords(_PlaceOptionsKeywords, _NetworkOptionsKeywords, total=False):
    """Which machines to consider; `links` and `network` replace what is known of them."""

    gpu: str | Sequence[str]
    """Only these GPUs or families, comma-separated."""
    max_gpus: int
    """Maximum number of GPUs."""

class _OwningOptionsKeywords(TypedDict, total=False):
    """How often the job is run per year, and what owning machines like the chosen ones would cost."""

    jobs_per_year: float | None
    """Number of times the job runs per year; adds a comparison with buying."""
    buy_price: float | str | None
    """Total purchase price of the selected machines."""
    usd_per_kwh: float | str | None
    """Electricity price for owned machines."""

class _PlanRequestKeywords(
    _ConfigOptionKeywords,
    _BatchLimitsKeywords,
    _TrainingOptionsKeywords,
    _LimitsKeywords,
    _MachineOptionsKeywords,
    _TopologyOptionKeywords,
    _InputOptionsKeywords,
    _LengthOptionsKeywords,
    _RunningOptionsKeywords,
    _OwningOptionsKeywords,
    total=False,
):
    """Which machines to rent for a job."""

    strategy: str | Sequence[str]
    """Strategies to compare: auto (all), or a subset of ddp,zero1,zero2,zero3."""
    layouts: bool
    """Also search tensor, pipeline and other model-parallel layouts on the Pareto front (seconds each)."""

class _SizeOptionsKeywords(TypedDict, total=False):
    """By which scaling law the size of a model is chosen, and what is fixed of it."""

    law: str
    """Scaling law that chooses: besiroglu-2024 (default), hoffmann-2022, deepseek-2024 or kaplan-2020."""
    params: float | str | None
    """Train a model of about this size instead of choosing one, e.g. 7B."""
    vocabulary: int | None
    """Tokens of the vocabulary (default: 32,000, as Llama)."""

class _SizeRequestKeywords(
    _LimitsKeywords,
    _SizeOptionsKeywords,
    _MachineOptionsKeywords,
    _SequenceOptionKeywords,
    _StepOptionsKeywords,
    _RunningOptionsKeywords,
    total=False,
):
    """Which size of model to train on how many tokens."""

    loss: Literal["eager", "fused"] | None
    """Cross-entropy loss: eager, or fused into one kernel (default: `framework` default)."""

class _TraceRequestKeywords(_WorkloadRequestKeywords, total=False):
    """What a training step consists of."""

    layers: bool
    """Include a table of all layers."""

class _ScalingRequestKeywords(TypedDict, total=False):
    """From a few timed configurations of a job to all the others."""

    at: str | Path | None
    """CSV of configurations to predict: same columns without step_seconds."""
    form: str
    """Model form: physical, ring, pollux, optimus or sanghvi; all compares them."""
    cluster: str
    """Cluster with known timings of other jobs, e.g. aws-4xt4."""
    workload: str | None
    """Model that was trained; its prediction serves as a prior. Requires `on`."""
    on: str | None
    """Hardware with full nodes, e.g. v100-sxm2-16gb:8, with `workload`."""
    precision: Literal["fp32", "tf32", "fp16", "bf16", "fp8"]
    """Precision of `workload`."""
    network: str | None
    """Network between nodes, if `on` does not specify one."""
    topology: str | Path | None
    """File with the output of `nvidia-smi topo -m`: how the GPUs of a node of `on` are joined."""

class _ResourcesRequestKeywords(
    _BatchOptionKeywords,
    _TrainingOptionsKeywords,
    _HardwareOptionKeywords,
    _TopologyOptionKeywords,
    _StrategyOptionsKeywords,
    _InputOptionsKeywords,
    total=False,
):
    """Bursts and idle gaps of a step on given hardware."""

    what_if: str | Sequence[str]
    """Also predict with a change; may be repeated: gpu=..., workers=..., servers=..., batch=..., network=...,
    strategy=..., precision=.... Separate several values by commas."""
    method: Literal["auto", "timeline", "inspector"]
    """Method: timeline, inspector, or auto (the one with the lower validation error for this
    configuration)."""
    sample_every: float | str | None
    """Sampling interval of the simulated monitor (default: 50 samples per step)."""

class _PairRequestKeywords(
    _TrainingOptionsKeywords,
    _HardwareOptionKeywords,
    _TopologyOptionKeywords,
    _NetworkOptionsKeywords,
    total=False,
):
    """Whether two jobs share a device and a link well."""

    loss: Literal["eager", "fused"] | None
    """Cross-entropy loss: eager, or fused into one kernel (default: `framework` default)."""
    batch: int | str | Sequence[int | str]
    """Batch size per device, for both jobs (32) or each job (32,64)."""
    strategy: str
    """Parallel strategy: ddp, zero1, zero2, zero3, fsdp, hsdp, dp, ps-sync, ps-async, ps-ksync=K,
    ps-kbatchsync=K, ps-kasync=K, ps-kbatchasync=K, degrees such as tp=T,cp=C,pp=P, or auto."""

class _LogRequestKeywords(_LogContextKeywords, total=False):
    """When a training log reaches its target."""

    target: str
    """Target value of a metric, e.g. loss=0.3 or accuracy=0.94."""
    direction: Literal["up", "down"] | None
    """Whether the metric improves upwards or downwards (default: inferred)."""

class _ConvergeRequestKeywords(_LogRequestKeywords, total=False):
    """When a training log reaches its target."""

class _StoreOptionKeywords(TypedDict, total=False):
    """Where runs and schedules are kept."""

    store: str | None
    """Store: SQLite file or postgresql:// URL (default: FORETRAIN_STORE, else your data folder)."""

class _MeasureRequestKeywords(_StoreOptionKeywords, total=False):
    """A command to run and watch, and what it trains."""

    model: str | None
    """Model that the command trains, to predict it first: zoo name, hf:CONFIG, hf:ORG/NAME, timm:NAME,
    torchvision:NAME, FILE.py:callable, FILE.onnx, FILE.pt2 or FILE.yaml."""
    on: str | None
    """Hardware of the run (`here`: this machine's CPU): DEVICE, DEVICE:COUNT, DEVICE:PER_NODExNODES,
    PROVIDER:INSTANCE[:NODES] or a cluster FILE.yaml."""
    batch: int | None
    """Batch size per device."""
    global_batch: int | None
    """Batch size across all devices; replaces `batch`."""
    strategy: str | None
    """Parallel strategy of the run, as in `predict`."""
    network: str | None
    """Network between nodes, as in `predict`."""
    precision: str | None
    """Precision, as in `predict`."""
    optimizer: str | None
    """Optimizer, as in `predict`."""
    seq_len: int | None
    """Tokens per sample."""
    image_size: int | None
    """Image height and width in pixels."""
    steps: int | None
    """Total number of steps, used to estimate the remaining time."""
    usd_per_hour: float | None
    """Price of all machines in USD per hour, to show the money left (default: that of a rented `on`)."""
    target: str | None
    """Target value of a metric in `log`, e.g. loss=0.3, to show its probability."""
    log: str | Path | None
    """Training log that the command writes, as in `converge`."""
    interval: float
    """Sampling interval of resource usage in seconds."""
    no_store: bool
    """Do not store the run."""
    join: str | Path | None
    """Folder shared by the nodes of one job; run `measure` on every node."""
    node: int | None
    """Rank of this node, with `join` (default: from torchrun or Slurm)."""
    nodes: int | None
    """Number of nodes, with `join` (default: from torchrun or Slurm)."""
    wait: float
    """Seconds that the first node waits for the others, with `join`."""

class _CampaignRequestKeywords(_StoreOptionKeywords, total=False):
    """A campaign file, and where it runs."""

    on: str | None
    """Run on a Ray cluster (default address: RAY_ADDRESS, else the cluster on this machine)."""
    limit: int | None
    """Maximum number of trials to run now."""
    dry_run: bool
    """List the trials without running them."""

class _CalibrateRequestKeywords(
    _BatchOptionKeywords, _TrainingOptionsKeywords, _PhaseOptionsKeywords, _StoreOptionKeywords, total=False
):
    """Your own timings, this machine, stored runs, or a profiler's trace."""

    loss: Literal["eager", "fused"] | None
    """Cross-entropy loss: eager, or fused into one kernel (default: `framework` default)."""
    here: bool
    """Time operators on this machine: its GPU, else its CPU."""
    seconds: float
    """Duration in seconds, with `here`."""
    runs: bool
    """Fit this machine to stored runs of CPU workers."""
    model: str | None
    """With `runs`: only runs of this model. With `trace`: the traced model."""
    device: str | None
    """With `runs`: only runs on this device."""
    campaign: str | None
    """With `runs`: only runs of this campaign."""
    held_out: str
    """With `runs`: held-out models: `each` in turn, `half` of them, or names."""
    trace: str | Path | None
    """Trace of `model` on `on`, exported by torch.profiler (.json or .json.gz)."""
    on: str | None
    """With `trace`: device on which it was recorded."""

class _ListCalibrationsRequestKeywords(TypedDict, total=False):
    """All calibrations."""

class _CalibrationRequestKeywords(TypedDict, total=False):
    """One calibration."""

class _ExportCalibrationRequestKeywords(TypedDict, total=False):
    """One calibration, and the file to write."""

    file: str | Path
    """File to write."""

class _ImportCalibrationRequestKeywords(TypedDict, total=False):
    """A calibration file."""

class _LearnRequestKeywords(_StoreOptionKeywords, total=False):
    """Regression on a user's own timings."""

    runs: str | None
    """Learn from stored runs instead: all, or filters such as model=resnet18,device=here,since=7d."""
    target: str | None
    """Column to predict; must be positive (default with `runs`: step_seconds)."""
    features: str | Sequence[str]
    """Feature columns, comma-separated (default: all)."""
    technique: str | Sequence[str]
    """Regression techniques: linear, ridge, nnls, ernest, svr, forest, boosting, gray-box (default: all)."""
    split: str | Sequence[str]
    """Validation splits: random, batch-size, gpu-count, compute-power, inner-modules, column=NAME, or all
    applicable ones. The first split selects the model."""
    model: str | None
    """Model trained in all rows, if the table has no column `model`; used by gray-box."""
    gray_box: bool
    """Use foretrain's own prediction as a feature (gray-box)."""
    drop_missing: bool
    """Drop rows with missing values."""

class _LearnLayersRequestKeywords(TypedDict, total=False):
    """Lines of layers from profiles."""

    predict: str | Sequence[str]
    """Profiles of other models to predict with the fitted lines."""
    complexity: Literal["operations", "predicted"]
    """Meaning of c: operations of the layer (published table), or foretrain's own prediction."""

class _InspectorOptionsKeywords(TypedDict, total=False):
    """`repetitions_per_node` times the nodes of a graph is K, how often the shared layer is repeated."""

    network: Literal["gcn", "gat", "gin", "mpnn"]
    """Type of graph network."""
    readout: Literal["set2set", "mean", "sum", "max"]
    """Graph readout."""
    grouping: Literal["proportional", "uniform", "none"]
    """Operator grouping."""

class _InspectorTrainingKeywords(TypedDict, total=False):
    """How an Inspector is trained: at most `epochs`, until `patience` epochs bring no better validation."""

    epochs: int
    """Maximum number of epochs per ensemble member."""
    members: int
    """Number of ensemble members."""
    folds: int
    """Number of cross-validation folds; each holds out whole models."""
    seed: int
    """Random seed."""

class _LearnResourcesRequestKeywords(
    _StoreOptionKeywords, _InspectorOptionsKeywords, _InspectorTrainingKeywords, total=False
):
    """Which runs an Inspector is trained on, and how."""

    runs: str | Path | None
    """Parquet file written by `foretrain runs export` (default: the store)."""
    model: str | Sequence[str]
    """Only runs of these models."""
    strategy: str | Sequence[str]
    """Only runs with these strategies."""
    start: str | Path | None
    """Fine-tune this Inspector (JSON file, or `shipped`) instead of training from scratch."""
    out: str | Path | None
    """Output JSON file; weights are saved beside it (default: your own Inspector, used by `resources`)."""

class _ProfileRequestKeywords(
    _BatchOptionKeywords, _TrainingOptionsKeywords, _PhaseOptionsKeywords, total=False
):
    """A model, and where its times come from: this machine or a trace."""

    loss: Literal["eager", "fused"] | None
    """Cross-entropy loss: eager, or fused into one kernel (default: `framework` default)."""
    here: bool
    """Run the model on this machine: its GPU, else its CPU."""
    trace: str | Path | None
    """Trace exported by torch.profiler on another machine, .json or .json.gz."""
    on: str | None
    """Device on which `trace` was recorded, e.g. rtx3090."""
    seconds: float
    """Approximate duration in seconds, with `here`."""

class _DevicesRequestKeywords(TypedDict, total=False):
    """What hardware is known."""

    vendor: str | None
    """Only this vendor: nvidia, amd, intel ..."""
    generation: str | None
    """Only this generation, e.g. ampere."""
    measure_here: bool
    """Measure this machine's CPU and add it as the device `here`."""

class _AddDeviceRequestKeywords(TypedDict, total=False):
    """A device of your own."""

class _ForgetDeviceRequestKeywords(TypedDict, total=False):
    """A device you added."""

class _ModelsRequestKeywords(TypedDict, total=False):
    """Which models can be trained."""

    search: str | None
    """Only models whose name, family or task contains this text."""

class _LinksRequestKeywords(TypedDict, total=False):
    """Which links and networks are known."""

    kind: str | None
    """Only this technology: pcie, nvlink, nvswitch, infiniband, ethernet ..."""
    topology: str | Path | None
    """Explain the output of `nvidia-smi topo -m` in this file: which links connect which GPUs."""
    device: str | None
    """GPU model in `topology`; adds the links used by predictions."""

class _OfferQueryKeywords(_PlaceOptionsKeywords, total=False):
    """What to look for among offers; everything left out matches everything."""

    gpu: str | None
    """Device, alias or family, e.g. h100."""
    count: int | None
    """Number of devices per machine."""
    spot: bool
    """Use spot prices."""
    historical: bool
    """Include offers that are no longer available."""
    max_price: float | str | None
    """Maximum price per hour."""
    sort: str
    """Sort order: price, price-per-gpu, cloud or gpu."""
    limit: int | None
    """Maximum number of rows."""
    all_regions: bool
    """List every region, not only the cheapest per machine."""

class _OffersRequestKeywords(_OfferQueryKeywords, total=False):
    """What machines cost to rent."""

    refresh: str | Path | None
    """Import newer prices: a CSV file in SkyPilot's layout, or `gpuhunt` to ask that package if it is
    installed."""
    as_of: str | None
    """Date of those prices, if the name of the file has none."""

class _AddOffersRequestKeywords(TypedDict, total=False):
    """Prices of your own."""

class _ForgetOffersRequestKeywords(TypedDict, total=False):
    """Prices you added."""

class _GuideRequestKeywords(_TrainingOptionsKeywords, total=False):
    """Networks by hardware by batch size."""

    loss: Literal["eager", "fused"] | None
    """Cross-entropy loss: eager, or fused into one kernel (default: `framework` default)."""
    on: str | Sequence[str]
    """Hardware to compare, repeated or comma-separated: DEVICE[:COUNT], PROVIDER:INSTANCE, FILE.yaml."""
    counts: int | str | Sequence[int | str]
    """GPU counts for devices in `on` without a count, e.g. 1,2,4,8."""
    batch: int | str | Sequence[int | str]
    """Global batch sizes: 32,64,96, or 32..8192 by doubling (default)."""
    samples: int | None
    """Samples per epoch; adds time and cost per epoch."""
    strategy: str
    """Parallel strategy: ddp, dp, zero1, zero2, zero3, fsdp or hsdp."""
    cloud: str | Sequence[str]
    """Only prices of these clouds, e.g. aws,gcp."""

class _RentOrBuyOptionsKeywords(TypedDict, total=False):
    """One machine to buy against one to rent."""

    price: float | str
    """Purchase price of the machine, e.g. 8000."""
    rent: float | str | None
    """Rent per hour, e.g. 1.50."""
    offer: str | None
    """Cloud offer to rent, e.g. lambda:gpu_8x_h100_sxm5."""
    relative_performance: float
    """Performance of the rented machine relative to the owned one, e.g. 0.7."""
    hours_per_year: float | None
    """Hours of use per year; 2,000 is a full-time working year."""
    utilisation: float | None
    """Use as a fraction of all 8,760 hours of a year, e.g. 0.5."""
    watts: float | None
    """Power draw of the owned machine under load."""
    device: str | None
    """Use the TDP of DEVICE:COUNT as the power draw."""
    usd_per_kwh: float | str
    """Price of electricity."""
    pue: float
    """Power usage effectiveness: total power / IT power; 1 means no cooling."""
    hosting: float | str
    """Cost of rack, network and repairs in USD per year."""
    resale: float | str
    """Resale value of the machine."""
    resale_after: float | str
    """Time until resale, e.g. 3y."""
    discount_rate: float
    """Annual discount rate, e.g. 0.08."""

class _RentOrBuyRequestKeywords(_RentOrBuyOptionsKeywords, total=False):
    """After how many hours of use owning a machine wins."""

class _ExplainRequestKeywords(TypedDict, total=False):
    """Every fact about a name."""

class _ProblemFieldsKeywords(TypedDict, total=False):
    """A problem as files."""

    cluster: str | Path | None
    """Cluster file (YAML): node types, prices, nodes."""
    times: str | Path | None
    """CSV with columns job,node_type,gpus,seconds for jobs with known run times."""

class _ScheduleRequestKeywords(_ProblemFieldsKeywords, total=False):
    """One decision from the present: which jobs run where, and what is predicted of all of them."""

    policy: str
    """Scheduling policy: auto, edf, edf-packed, fairness, fifo, fifo-packed, greedy, las, local-search, milp,
    path-relinking, price, priority, priority-packed, random-greedy, srtf, throughput."""
    now: float | str | None
    """Current time on the clock of JOBS (default: time of the last submission)."""
    what_if: str | Path | None
    """Show the effect of submitting this job (YAML) now."""
    draws: int
    """Number of simulations with random prediction errors, for intervals."""
    seed: int
    """Random seed of the simulations."""

class _SimulateRequestKeywords(_ProblemFieldsKeywords, total=False):
    """The whole horizon of many jobs on a cluster under one or several policies."""

    policy: str | Sequence[str]
    """Scheduling policy: auto, edf, edf-packed, fairness, fifo, fifo-packed, greedy, las, local-search, milp,
    path-relinking, price, priority, priority-packed, random-greedy, srtf, throughput. Give several,
    comma-separated, or `all` to compare them."""
    bound: bool
    """Compute a lower bound of the cost."""
    every: float | str | None
    """Maximum time between scheduling decisions, e.g. 10m."""
    seed: int
    """Random seed."""
    prediction_error: bool
    """Draw actual run times from the prediction intervals."""
    interruptions: bool
    """Interrupt spot nodes at their interruption rate."""
    failures: float
    """Failures per node and day."""
    repair: float | str
    """Repair time of a failed node."""
    generate: str | None
    """Generate a problem of this family instead of reading JOBS: low, high, mixed, exponential ..."""
    nodes: int | None
    """Number of nodes of the generated problem."""
    philly: str | Path | None
    """Replay a trace with columns timestamp,duration,num_gpus (.csv or .csv.gz)."""
    most_jobs: int | None
    """Maximum number of jobs to read from the trace."""

class _RunRequestKeywords(_ProblemFieldsKeywords, _StoreOptionKeywords, total=False):
    """The jobs of a file for real, on this machine, a Ray cluster or a Slurm cluster."""

    policy: str
    """Scheduling policy: auto, edf, edf-packed, fairness, fifo, fifo-packed, greedy, las, local-search, milp,
    path-relinking, price, priority, priority-packed, random-greedy, srtf, throughput."""
    backend: str
    """Where jobs run: local, ray or slurm."""
    backend_option: str | Sequence[str]
    """Backend option, e.g. address=auto; may be repeated."""
    name: str
    """Name of the schedule; an existing schedule of this name is resumed."""
    folder: str | Path | None
    """Folder for checkpoints and output, shared by all nodes."""
    every: float | str | None
    """Maximum time between scheduling decisions, e.g. 10m."""
    seed: int
    """Random seed of the policy."""

class _QueryFieldsKeywords(_StoreOptionKeywords, total=False):
    """Which runs."""

    model: str | None
    """Only runs of this model."""
    device: str | None
    """Only runs on this device."""
    campaign: str | None
    """Only runs of this campaign."""
    status: Literal["completed", "failed", "out-of-memory", "timed-out", "interrupted"] | None
    """Only runs with this status: completed, failed, out-of-memory, timed-out, interrupted."""
    since: str | None
    """Only runs since this time: a date such as 2026-11-16, or 7d for the last 7 days."""

class _ListRunsRequestKeywords(_QueryFieldsKeywords, total=False):
    """Runs in a table."""

    limit: int
    """Maximum number of runs, newest first."""

class _ShowRunRequestKeywords(_StoreOptionKeywords, total=False):
    """One run."""

class _CompareRunsRequestKeywords(_StoreOptionKeywords, total=False):
    """Several runs."""

class _ExportRunsRequestKeywords(_QueryFieldsKeywords, total=False):
    """Runs into a file."""

    format: Literal["csv", "parquet", "json"] | None
    """csv, parquet or json (default: from the file name)."""

class _ImportRunsRequestKeywords(_StoreOptionKeywords, total=False):
    """Runs out of a file."""

    format: Literal["csv", "parquet", "json"] | None
    """csv, parquet or json (default: from the file name)."""

class _DeleteRunsRequestKeywords(_StoreOptionKeywords, total=False):
    """Runs to delete."""

    campaign: str | None
    """All runs of this campaign."""

class _ValidateRequestKeywords(_QueryFieldsKeywords, total=False):
    """Which runs are compared with predictions."""

def predict(
    model: str | PredictRequest | torch.nn.Module | None = None,
    *,
    inputs: Any = None,
    loss: Any = None,
    **options: Unpack[_PredictRequestKeywords],
) -> JobPrediction | Infeasible:
    """Predict a training step, and the whole job if its length is given, on given hardware.

    `model` is a name or file as on the command line, or a module; a module needs example `inputs` (a tensor,
    a tuple of them, or a dict) and, unless it returns the loss itself, a `loss` function of its output. It is
    not changed. `on` is hardware: `"h100-sxm:8"`, `"aws:p4d.24xlarge:2"`, `"cluster.yaml"`.

    >>> p = ft.predict("mnist-cnn", on="rtx3090", batch=64, precision="fp16", advice=False)
    >>> p.memory.fits, p.strategy, p.knowledge.value
    (True, 'ddp', 'calibrated')
    >>> p.step.seconds.p10 < p.step.seconds.p50 < p.step.seconds.p90
    True
    >>> job = ft.predict("mnist-cnn", on="t4", batch=64, samples=60_000, epochs=10, advice=False).job
    >>> job.steps
    9380
    """

def fit(
    model: str | FitRequest | torch.nn.Module | None = None,
    *,
    inputs: Any = None,
    loss: Any = None,
    **options: Unpack[_FitRequestKeywords],
) -> FitAnswer | Infeasible:
    """Ask whether a training step fits into memory, and what would make it fit.

    >>> answer = ft.fit("mnist-cnn", on="t4", batch=64)
    >>> answer.memory.fits, answer.probability > 0.99
    (True, True)
    """

def plan(
    model: str | PlanRequest | torch.nn.Module | None = None,
    *,
    inputs: Any = None,
    loss: Any = None,
    **options: Unpack[_PlanRequestKeywords],
) -> Frontier | Infeasible:
    """Find what to rent for a job: every offer that could run it, the Pareto front, and which to take.

    >>> answer = ft.plan("mnist-cnn", samples=60_000, epochs=100, deadline="12h", gpu="t4", cloud="aws")
    >>> answer.meets_limits
    True
    >>> answer.plans[answer.chosen].hardware.device.id
    't4'
    """

def size(
    request: SizeRequest | None = None, **options: Unpack[_SizeRequestKeywords]
) -> SizeAnswer | Infeasible:
    """Find the model size and the number of tokens of the lowest expected loss within money and time.

    >>> answer = ft.size(budget="20usd", deadline="12h", gpu="a10g", cloud="aws", max_gpus=1)
    >>> answer.run.shape.parameters < 1e9 < answer.run.tokens
    True
    """

def trace(
    model: str | TraceRequest | torch.nn.Module,
    *,
    inputs: Any = None,
    loss: Any = None,
    **options: Unpack[_TraceRequestKeywords],
) -> Trace:
    """See what a training step consists of: parameters, FLOP, bytes, layers.

    >>> ft.trace("voice-conv", batch=2).step.parameters
    376200
    """

def scaling(
    timings: str | Path | ScalingRequest, **options: Unpack[_ScalingRequestKeywords]
) -> ScalingAnswer:
    """Predict all configurations of a job from a few timed ones.

    >>> answer = ft.scaling("docs/examples/timings.csv")
    >>> answer.model.form
    'physical'
    """

def resources(
    model: str | ResourcesRequest | torch.nn.Module,
    *,
    inputs: Any = None,
    loss: Any = None,
    **options: Unpack[_ResourcesRequestKeywords],
) -> ConsumptionAnswer | Infeasible:
    """Bursts and idle gaps of a step: what a worker uses over time, and what changes it.

    >>> answer = ft.resources("mnist-cnn", on="t4", batch=64, method="timeline")
    >>> answer.consumption.method
    'timeline'
    """

def pair(
    *models: str | Sequence[str] | PairRequest, **options: Unpack[_PairRequestKeywords]
) -> PairAnswer | Infeasible:
    """Whether two jobs share a device and a link well.

    >>> answer = ft.pair("mnist-cnn", "voice-conv", on="t4")
    >>> len(answer.jobs)
    2
    """

def converge(log: str | Path | ConvergeRequest, **options: Unpack[_ConvergeRequestKeywords]) -> Convergence:
    """Predict when a training log reaches its target.

    >>> answer = ft.converge("docs/examples/loss.csv", target="loss=0.7")
    >>> answer.reaches
    True
    """

def measure(
    *command: str | Sequence[str] | MeasureRequest, **options: Unpack[_MeasureRequestKeywords]
) -> Measured:
    """Run a training `command` unchanged, measure its steps and resource usage, and store the run.

    >>> answer = ft.measure("python3", "-c", "pass", no_store=True)
    >>> answer.exit_code, answer.report.run.status.value
    (0, 'completed')
    """

def campaign(
    file: str | Path | CampaignRequest, **options: Unpack[_CampaignRequestKeywords]
) -> CampaignTrials | CampaignAnswer:
    """Run the trials of a campaign `file` that are not stored yet; with `dry_run` list them.

    >>> ft.campaign("campaigns/batch_sizes.yaml", dry_run=True).trials
    58
    """

def calibrate(
    timings: str | Path | CalibrateRequest | None = None, **options: Unpack[_CalibrateRequestKeywords]
) -> MachineLearned | GpuLearned | TimingsLearned | RunsLearned | TraceLearned:
    """Learn from your own `timings`, this machine (`here`), stored `runs` or a profiler's `trace`.

    >>> answer = ft.calibrate("docs/examples/step_timings.csv")
    >>> [step.configuration.batch for step in answer.steps], answer.stored
    ([64, 128], 2)
    """

def list_calibrations(
    request: ListCalibrationsRequest | None = None, **options: Unpack[_ListCalibrationsRequestKeywords]
) -> CalibrationList:
    """List all calibrations that correct predictions on this machine.

    >>> ft.calibrate("docs/examples/step_timings.csv").stored
    2
    >>> [each.name for each in ft.list_calibrations().calibrations]
    ['timings-rtx3090']
    """

def show_calibration(
    name: str | CalibrationRequest, **options: Unpack[_CalibrationRequestKeywords]
) -> CalibrationAnswer:
    """Show the calibration of this `name` and what it was fitted on.

    >>> ft.calibrate("docs/examples/step_timings.csv").stored
    2
    >>> ft.show_calibration("timings-rtx3090").calibration.device
    'rtx3090'
    """

def forget_calibration(
    name: str | CalibrationRequest, **options: Unpack[_CalibrationRequestKeywords]
) -> CalibrationAnswer:
    """Remove the calibration of this `name` and its effect on predictions.

    >>> ft.calibrate("docs/examples/step_timings.csv").stored
    2
    >>> ft.forget_calibration("timings-rtx3090").done
    'forgotten'
    """

def export_calibration(
    name: str | ExportCalibrationRequest, **options: Unpack[_ExportCalibrationRequestKeywords]
) -> CalibrationAnswer:
    """Write the calibration of this `name` to a portable `file`.

    >>> ft.calibrate("docs/examples/step_timings.csv").stored
    2
    >>> ft.export_calibration("timings-rtx3090", file="mine.json").done
    'exported'
    """

def import_calibration(
    file: str | Path | ImportCalibrationRequest, **options: Unpack[_ImportCalibrationRequestKeywords]
) -> CalibrationAnswer:
    """Validate and store a calibration `file`, written by `export_calibration` here or elsewhere.

    >>> ft.calibrate("docs/examples/step_timings.csv").stored
    2
    >>> ft.export_calibration("timings-rtx3090", file="mine.json").done
    'exported'
    >>> ft.import_calibration("mine.json").done
    'imported'
    """

def learn(
    table: str | Path | LearnRequest | Sequence[Mapping[str, Any]] | None = None,
    **options: Unpack[_LearnRequestKeywords],
) -> LearnAnswer:
    """Learn what runs take from a table of timings (a CSV file or rows as dicts), or from stored `runs`.

    >>> rows = [{"batch": batch, "seconds": 0.01 + 0.002 * batch} for batch in (4, 8, 16, 24, 32, 48, 64)]
    >>> answer = ft.learn(rows, target="seconds", technique="linear", split="batch-size")
    >>> answer.model.formula
    'seconds = 0.01 + 0.002 · (batch)'
    >>> round(answer.model.predict([{"batch": 128}])[0].p50, 3)
    0.266
    """

def learn_layers(
    *profiles: str | Sequence[str] | LearnLayersRequest, **options: Unpack[_LearnLayersRequestKeywords]
) -> LayersAnswer:
    """Fit one line per layer type to `profiles` (files of `profile`), and predict other profiles by it.

    >>> from pathlib import Path
    >>> profile = ft.profile("mnist-cnn", here=True, batch=2, seconds=0.1)
    >>> _ = Path("profile.json").write_text(profile.to_json())
    >>> "convolution forward" in ft.learn_layers("profile.json").lines
    True
    """

def learn_resources(
    request: LearnResourcesRequest | None = None, **options: Unpack[_LearnResourcesRequestKeywords]
) -> ResourcesLearned:
    """Train the Inspector, which predicts bursts and idle gaps, on stored runs with resource samples.

    >>> ft.learn_resources(model="resnet50")
    Traceback (most recent call last):
        ...
    foretrain.errors.MissingData: there are no stored runs; `foretrain campaign FILE` measures some
    """

def profile(model: str | ProfileRequest, **options: Unpack[_ProfileRequestKeywords]) -> Profile:
    """Compare measured and predicted times of operators and layers, run `here` or read from a `trace`.

    >>> answer = ft.profile("mnist-cnn", here=True, batch=2, seconds=0.1)
    >>> answer.device, answer.step_seconds > 0
    ('here', True)
    """

def list_devices(
    name: str | DevicesRequest | None = None, **options: Unpack[_DevicesRequestKeywords]
) -> DeviceList:
    """What hardware is known: all of it, the variants of a family, or one device in full.

    >>> [device.id for device in ft.list_devices("t4").devices]
    ['t4']
    """

def add_device(
    file: str | Path | AddDeviceRequest, **options: Unpack[_AddDeviceRequestKeywords]
) -> OwnDevice:
    """Check a device `file` of your own and keep it: it is then a device like the others.

    >>> ft.add_device("docs/examples/lab_x1.toml").done
    'added'
    >>> ft.predict("resnet50", on="lab-x1", batch=64).cluster.groups[0].device.is_own
    True
    """

def forget_device(
    name: str | ForgetDeviceRequest, **options: Unpack[_ForgetDeviceRequestKeywords]
) -> OwnDevice:
    """Remove the device of this `name`, which you added.

    >>> ft.add_device("docs/examples/lab_x1.toml").done
    'added'
    >>> ft.forget_device("lab-x1").done
    'forgotten'
    """

def list_models(request: ModelsRequest | None = None, **options: Unpack[_ModelsRequestKeywords]) -> ModelList:
    """The models of the zoo, and what else can be given as a model.

    >>> [model.name for model in ft.list_models(search="mnist").models]
    ['mnist-cnn', 'mnist-resnet18']
    """

def list_links(
    request: LinksRequest | None = None, **options: Unpack[_LinksRequestKeywords]
) -> LinkList | TopologyAnswer:
    """Links and networks with their rates; with a `topology` file, how the GPUs of that machine are joined.

    >>> {link.kind.value for link in ft.list_links(kind="nvlink").links}
    {'nvlink'}
    """

def list_offers(
    request: OffersRequest | None = None, **options: Unpack[_OffersRequestKeywords]
) -> OfferList | ImportReport:
    """What machines cost to rent, every price with its date; `refresh` imports newer prices instead.

    >>> len(ft.list_offers(gpu="t4", cloud="aws", limit=3).offers)
    3
    """

def add_offers(
    file: str | Path | AddOffersRequest, **options: Unpack[_AddOffersRequestKeywords]
) -> OwnOffers:
    """Check a `file` of your own prices and keep them: plans consider them like those of clouds.

    >>> [offer.instance for offer in ft.add_offers("docs/examples/lab_offers.csv").offers]
    ['a100-8', 'h100-8']
    >>> ft.list_offers(cloud="lab").offers[0].usd_per_hour
    9.5
    """

def forget_offers(
    name: str | ForgetOffersRequest, **options: Unpack[_ForgetOffersRequestKeywords]
) -> OwnOffers:
    """Remove the offers of this `name` (a provider, or PROVIDER:INSTANCE), which you added.

    >>> len(ft.add_offers("docs/examples/lab_offers.csv").offers)
    2
    >>> len(ft.forget_offers("lab").offers)
    2
    """

def guide(*models: str | Sequence[str] | GuideRequest, **options: Unpack[_GuideRequestKeywords]) -> Guide:
    """The buyer's guide: time, cost, memory and bottleneck of networks by hardware by batch size.

    >>> answer = ft.guide("mnist-cnn", on=["t4", "t4:2"], batch=[32, 64])
    >>> [machine.name for machine in answer.machines]
    ['t4', 't4:2']
    """

def rent_or_buy(
    request: RentOrBuyRequest | None = None, **options: Unpack[_RentOrBuyRequestKeywords]
) -> RentOrBuy:
    """After how many hours of use does owning a machine win?

    >>> answer = ft.rent_or_buy(price=8000, rent=1.5, relative_performance=0.7)
    >>> round(answer.break_even_hours)
    3733
    """

def explain(name: str | ExplainRequest, **options: Unpack[_ExplainRequestKeywords]) -> Explanation:
    """Every fact about a name (a device, link, node, provider, offer, source), with its kind and source.

    >>> ft.explain("nvlink4").kind
    'link'
    """

def schedule(jobs: str | Path | ScheduleRequest, **options: Unpack[_ScheduleRequestKeywords]) -> Schedule:
    """Decide once which jobs run where, and predict start, end and cost of all of them.

    >>> cluster, times = "docs/examples/cluster.yaml", "docs/examples/times.csv"
    >>> answer = ft.schedule("docs/examples/jobs.csv", cluster=cluster, times=times, policy="edf-packed")
    >>> answer.jobs[0].runs
    True
    """

def simulate(
    jobs: str | Path | SimulateRequest | None = None, **options: Unpack[_SimulateRequestKeywords]
) -> Outcome | Comparison:
    """Simulate many jobs on a cluster over their whole horizon; several policies are compared.

    >>> answer = ft.simulate(generate="low", nodes=2, seed=1, policy=["fifo", "edf-packed"], bound=False)
    >>> [outcome.policy for outcome in answer.outcomes], answer.best.policy
    (['fifo', 'edf-packed'], 'edf-packed')
    """

def run(jobs: str | Path | RunRequest, **options: Unpack[_RunRequestKeywords]) -> RealRun:
    """Run the `jobs` of a file on this machine, a Ray cluster or a Slurm cluster until all have ended.

    A schedule of the same `name` is resumed: no job is started twice or lost.

    >>> from pathlib import Path
    >>> columns = "job,submit_seconds,deadline_seconds,weight_usd_per_second,command"
    >>> _ = Path("jobs.csv").write_text(f"{columns}\nhello,0,600,0.01,echo hello\n")
    >>> _ = Path("times.csv").write_text("job,node_type,gpus,seconds\nhello,small,1,1\n")
    >>> _ = Path("cluster.yaml").write_text(
    ...     "max_nodes: 1\nnode_types:\n  small: {gpu: k80, gpus: 1, usd_per_hour: 0.1}\n"
    ... )
    >>> answer = ft.run("jobs.csv", cluster="cluster.yaml", times="times.csv", policy="fifo")
    >>> [job.status.value for job in answer.outcome.jobs]
    ['completed']
    """

def list_runs(request: ListRunsRequest | None = None, **options: Unpack[_ListRunsRequestKeywords]) -> RunList:
    """List the newest stored runs: all, or those of a `model`, a `device` or a `campaign`.

    >>> ft.import_runs("docs/examples/run_timings.csv").added
    4
    >>> [run.setting["batch"] for run in ft.list_runs(limit=2).runs]
    [200, 20]
    """

def show_run(id: str | ShowRunRequest, **options: Unpack[_ShowRunRequestKeywords]) -> RunDetails:
    """Show one stored run: steps, resources, prediction and measurement. `id` may be the start of its id.

    >>> ft.import_runs("docs/examples/run_timings.csv").added
    4
    >>> newest = ft.list_runs(limit=1).runs[0]
    >>> ft.show_run(newest.id).run.summary.seconds
    1.005026
    """

def compare_runs(
    *ids: str | Sequence[str] | CompareRunsRequest, **options: Unpack[_CompareRunsRequestKeywords]
) -> RunComparison:
    """Compare stored runs side by side, with ratios to the first. `ids` may be the start of ids.

    >>> ft.import_runs("docs/examples/run_timings.csv").added
    4
    >>> first, second = ft.list_runs(limit=2).runs
    >>> [figure.name for figure in ft.compare_runs(first.id, second.id).figures][:2]
    ['step', 'step p90']
    """

def export_runs(
    file: str | Path | ExportRunsRequest, **options: Unpack[_ExportRunsRequestKeywords]
) -> RunsExported:
    """Write stored runs to a CSV, Parquet or JSON `file`.

    >>> ft.import_runs("docs/examples/run_timings.csv").added
    4
    >>> ft.export_runs("runs.json", model="resnet50").runs
    4
    """

def import_runs(
    file: str | Path | ImportRunsRequest, **options: Unpack[_ImportRunsRequestKeywords]
) -> RunsImported:
    """Add the runs of a `file` to the store, all or none of them; stored runs are not added again.

    >>> ft.import_runs("docs/examples/run_timings.csv").added
    4
    >>> ft.import_runs("docs/examples/run_timings.csv").added
    0
    """

def delete_runs(
    *ids: str | Sequence[str] | DeleteRunsRequest, **options: Unpack[_DeleteRunsRequestKeywords]
) -> RunsDeleted:
    """Delete runs from the store, by their `ids` or all of a `campaign`, without asking.

    >>> ft.import_runs("docs/examples/run_timings.csv").added
    4
    >>> ft.delete_runs(ft.list_runs(limit=1).runs[0].id).deleted
    1
    """

def validate(
    request: ValidateRequest | None = None, **options: Unpack[_ValidateRequestKeywords]
) -> ValidateAnswer:
    """Compare stored runs with the predictions made before them and with those of today.

    >>> ft.import_runs("docs/examples/run_timings.csv").added
    4
    >>> answer = ft.validate(model="resnet50")
    >>> answer.before is None, answer.now.overall.runs
    (True, 4)
    """
