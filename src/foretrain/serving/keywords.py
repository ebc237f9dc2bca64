"""The keywords of the Python verbs, as type checkers and editors read them.

Written by `scripts/write_keywords.py` from the requests, whose options are declared on the nouns of the core.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, TypedDict


class BatchOptionKeywords(TypedDict, total=False):
    """The batch of each device."""

    batch: int | None
    """Batch size per device."""


class SampleOptionsKeywords(TypedDict, total=False):
    """Sizes of a sample."""

    seq_len: int | None
    """Tokens per sample."""
    image_size: int | None
    """Image height and width in pixels."""


class StepOptionsKeywords(TypedDict, total=False):
    """How one training step is run."""

    precision: Literal["fp32", "tf32", "fp16", "bf16", "fp8"] | None
    """Numeric precision: fp32, tf32, fp16 or bf16 (mixed precision) or fp8 (default: device default)."""
    optimizer: str | None
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


class TrainingOptionsKeywords(SampleOptionsKeywords, StepOptionsKeywords, total=False):
    """How a model is trained."""

    lora: str | None
    """Train LoRA adapters only, e.g. r=16, r=16,targets=all-linear, r=16,dora, r=16,half,
    r=16,quantised[,double]."""


class PhaseOptionsKeywords(TypedDict, total=False):
    """Which parts of a training step are left out."""

    forward_only: bool
    """Run the forward pass only."""
    no_optimizer: bool
    """Skip the optimizer step."""


class WorkloadRequestKeywords(
    BatchOptionKeywords, TrainingOptionsKeywords, PhaseOptionsKeywords, total=False
):
    """A model by name or file, its sizes, and how a step is run."""

    trace: Literal["meta", "real"] | None
    """How to trace the model: meta (default), shapes only; real, run it on this CPU with the example
    inputs."""


class HardwareOptionKeywords(TypedDict, total=False):
    """The hardware to train on."""

    on: str
    """Hardware: DEVICE, DEVICE:COUNT, DEVICE:PER_NODExNODES, PROVIDER:INSTANCE[:NODES] or a cluster
    FILE.yaml."""


class TopologyOptionKeywords(TypedDict, total=False):
    """How the GPUs of a node are joined, as the driver reports it."""

    topology: str | Path | None
    """File with the output of `nvidia-smi topo -m`: how GPUs of a node are joined, in place of `links`."""


class BatchDivisionKeywords(TypedDict, total=False):
    """The batch of all devices, and the parts it is trained in."""

    global_batch: int | None
    """Batch size across all devices; replaces `batch`."""
    micro_batches: int | None
    """Micro-batches per step and replica (gradient accumulation or pipeline)."""


class NetworkOptionsKeywords(TypedDict, total=False):
    """How devices are connected, where facts do not know it or something else is assumed."""

    links: str | None
    """Links within a node, e.g. nvlink2:6 or pcie4-x16@TOPOLOGY (pcie-switch, two-bridges, host-memory,
    host-bridge)."""
    network: str | None
    """Network between nodes, e.g. infiniband-ndr:8."""


class StrategyOptionsKeywords(BatchDivisionKeywords, NetworkOptionsKeywords, total=False):
    """By which strategy a step runs on many devices."""

    strategy: str
    """Parallel strategy: ddp, zero1, zero2, zero3, fsdp, hsdp, dp, ps-sync, ps-async, ps-ksync=K,
    ps-kbatchsync=K, ps-kasync=K, ps-kbatchasync=K, degrees such as tp=T,cp=C,pp=P, or auto."""


class ParallelismKeywords(StrategyOptionsKeywords, total=False):
    """How a step is parallelised; what is None is chosen."""

    min_batch: int | None
    """Minimum batch size per device on a heterogeneous cluster."""
    jitter: float | None
    """Coefficient of variation of step times across devices (default 0.05; 0 disables)."""


class CostModelOptionsKeywords(TypedDict, total=False):
    """What prices operators and steps."""

    cost_model: str
    """Cost model: foretrain, roofline, per-layer, end-to-end (requires `timings`), a FILE of your own
    timings, or a model saved by learn (.json)."""
    timings: str | Path | None
    """Your own timings, used to fit `cost_model` end-to-end."""


class InputOptionsKeywords(TypedDict, total=False):
    """Where samples come from. Without a data set, inputs are in pinned host memory."""

    dataset: str | None
    """Include data loading from this data set: imagenet-jpeg, cifar10, mnist, tokens or synthetic."""
    storage: str
    """Storage of the data set: nvme, sata-ssd, hdd, network-disk."""
    loader_workers: int
    """Number of data-loading processes; 0 loads in the training process."""
    prefetch: bool
    """Overlap data loading with training."""


class LogContextKeywords(TypedDict, total=False):
    """What is known of the run that wrote a log, besides the log."""

    planned_steps: float | None
    """Planned length of the run that wrote `log`, in the unit of the log."""
    schedule: str | None
    """Learning-rate schedule of `log`: linear, linear:0.4, cosine, step:0.5,0.75, constant."""
    history: str | Path | None
    """Folder with logs of earlier runs of the same task and metric."""


class LengthOptionsKeywords(LogContextKeywords, total=False):
    """The length of a job, given by at most one of `steps`, `epochs` and `log`."""

    samples: int | None
    """Samples per epoch."""
    epochs: float | None
    """Number of epochs; requires `samples`."""
    steps: int | None
    """Number of training steps."""
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


class EvaluationOptionsKeywords(TypedDict, total=False):
    """Evaluations in the course of a job. Without `eval_every` there is one at its end."""

    eval_samples: int | None
    """Samples per evaluation."""
    eval_every: int | None
    """Steps between evaluations (default: one epoch, or the whole job)."""


class RunningOptionsKeywords(EvaluationOptionsKeywords, total=False):
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


class BillingOptionsKeywords(TypedDict, total=False):
    """What machines cost, and where they are."""

    usd_per_hour: float | str | None
    """Total price of all machines per hour (default: price of the offer)."""
    region: str | None
    """Where the job runs: cloud region, country or US state."""


class PredictRequestKeywords(
    WorkloadRequestKeywords,
    HardwareOptionKeywords,
    TopologyOptionKeywords,
    ParallelismKeywords,
    CostModelOptionsKeywords,
    InputOptionsKeywords,
    LengthOptionsKeywords,
    RunningOptionsKeywords,
    BillingOptionsKeywords,
    total=False,
):
    """What a training step, and the whole job, take on given hardware."""

    power_limit: float | None
    """Power limit per device in watts (default: data sheet). A lower limit slows down matrix products."""
    advice: bool
    """Search for changes that make the step faster."""


class FitRequestKeywords(
    WorkloadRequestKeywords, HardwareOptionKeywords, TopologyOptionKeywords, ParallelismKeywords, total=False
):
    """Whether a training step fits into memory."""


class BatchLimitsKeywords(BatchOptionKeywords, BatchDivisionKeywords, total=False):
    """A fixed batch of each device and step, a fixed global batch, or any up to `max_global_batch`."""

    max_global_batch: int | None
    """Maximum global batch size."""


class LimitsKeywords(TypedDict, total=False):
    """Deadline (seconds) and budget (USD) of a job, and the probability with which they must be met."""

    deadline: float | str | None
    """Maximum duration of the job, e.g. 12h or 2d."""
    budget: float | str | None
    """Maximum cost, e.g. 200usd or $1,500."""
    confidence: float
    """Required probability of meeting `deadline` and `budget`, e.g. 0.9."""


class MachineOptionsKeywords(NetworkOptionsKeywords, total=False):
    """Which machines to consider; `links` and `network` replace what is known of them."""

    gpu: str | Sequence[str]
    """Only these GPUs or families, comma-separated."""
    cloud: str | Sequence[str]
    """Only these clouds, e.g. aws,gcp."""
    region: str | Sequence[str]
    """Only these regions, comma-separated."""
    max_gpus: int
    """Maximum number of GPUs."""


class OwningOptionsKeywords(TypedDict, total=False):
    """How often the job is run per year, and what owning machines like the chosen ones would cost."""

    jobs_per_year: float | None
    """Number of times the job runs per year; adds a comparison with buying."""
    buy_price: float | str | None
    """Total purchase price of the selected machines."""
    usd_per_kwh: float | str | None
    """Electricity price for owned machines."""


class PlanRequestKeywords(
    BatchLimitsKeywords,
    TrainingOptionsKeywords,
    LimitsKeywords,
    MachineOptionsKeywords,
    TopologyOptionKeywords,
    InputOptionsKeywords,
    LengthOptionsKeywords,
    RunningOptionsKeywords,
    OwningOptionsKeywords,
    total=False,
):
    """Which machines to rent for a job."""

    strategy: str | Sequence[str]
    """Strategies to compare: auto (all), or a subset of ddp,zero1,zero2,zero3."""
    layouts: bool
    """Also search tensor, pipeline and other model-parallel layouts on the Pareto front (seconds each)."""


class TraceRequestKeywords(WorkloadRequestKeywords, total=False):
    """What a training step consists of."""

    layers: bool
    """Include a table of all layers."""


class GuideRequestKeywords(TrainingOptionsKeywords, total=False):
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


class LogRequestKeywords(LogContextKeywords, total=False):
    """When a training log reaches its target."""

    target: str
    """Target value of a metric, e.g. loss=0.3 or accuracy=0.94."""
    direction: Literal["up", "down"] | None
    """Whether the metric improves upwards or downwards (default: inferred)."""


class ConvergeRequestKeywords(LogRequestKeywords, total=False):
    """When a training log reaches its target."""


class ScalingRequestKeywords(TypedDict, total=False):
    """From a few timed configurations of a job to all the others."""

    at: str | Path | None
    """CSV of configurations to predict: same columns without step_seconds."""
    form: str
    """Model form: physical, ring, pollux, optimus or seed; all compares them."""
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


class LearnRequestKeywords(TypedDict, total=False):
    """Regression on a user's own timings."""

    runs: str | None
    """Learn from stored runs instead: all, or filters such as model=resnet18,device=here,since=7d."""
    store: str | None
    """Store to read with `runs`: SQLite file or database URL."""
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


class RentOrBuyOptionsKeywords(TypedDict, total=False):
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


class RentOrBuyRequestKeywords(RentOrBuyOptionsKeywords, total=False):
    """After how many hours of use owning a machine wins."""


class ProblemFieldsKeywords(TypedDict, total=False):
    """A problem as files."""

    cluster: str | Path | None
    """Cluster file (YAML): node types, prices, nodes."""
    times: str | Path | None
    """CSV with columns job,node_type,gpus,seconds for jobs with known run times."""


class SimulateRequestKeywords(ProblemFieldsKeywords, total=False):
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


class ScheduleRequestKeywords(ProblemFieldsKeywords, total=False):
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


class RunRequestKeywords(ProblemFieldsKeywords, total=False):
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
    store: str | None
    """Store for the state of the schedule: SQLite file or database URL."""
    every: float | str | None
    """Maximum time between scheduling decisions, e.g. 10m."""
    seed: int
    """Random seed of the policy."""


class DevicesRequestKeywords(TypedDict, total=False):
    """What hardware is known."""

    vendor: str | None
    """Only this vendor: nvidia, amd, intel ..."""
    generation: str | None
    """Only this generation, e.g. ampere."""
    measure_here: bool
    """Measure this machine's CPU and add it as the device `here`."""


class OffersRequestKeywords(TypedDict, total=False):
    """What machines cost to rent."""

    gpu: str | None
    """Device, alias or family, e.g. h100."""
    count: int | None
    """Number of devices per machine."""
    cloud: str | Sequence[str]
    """Only these providers, e.g. aws,gcp."""
    region: str | Sequence[str]
    """Only these regions, comma-separated."""
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
    refresh: str | Path | None
    """Import a newer price file (CSV in SkyPilot's layout)."""
    as_of: str | None
    """Date of that file, if its name has none."""


class LinksRequestKeywords(TypedDict, total=False):
    """Which links and networks are known."""

    kind: str | None
    """Only this technology: pcie, nvlink, nvswitch, infiniband, ethernet ..."""
    topology: str | Path | None
    """Explain a file with the output of `nvidia-smi topo -m`: which GPUs are joined by what."""
    device: str | None
    """The GPUs of `topology`, for the links that predictions use."""


class ModelsRequestKeywords(TypedDict, total=False):
    """Which models can be trained."""

    search: str | None
    """Only models whose name, family or task contains this text."""


class StoreFieldKeywords(TypedDict, total=False):
    """Which store."""

    store: str | None
    """SQLite file or postgresql:// URL of the store (default: FORETRAIN_STORE, else your data folder)."""


class QueryFieldsKeywords(StoreFieldKeywords, total=False):
    """Which runs."""

    model: str | None
    """Only runs of this model."""
    device: str | None
    """Only runs on this device."""
    campaign: str | None
    """Only runs of this campaign."""
    status: Literal["completed", "failed", "out-of-memory", "timed-out", "interrupted"] | None
    """Only runs that ended so: completed, failed, out-of-memory, timed-out, interrupted."""
    since: str | None
    """Only runs since then: 2026-11-16, or 7d for the last 7 days."""


class ListRunsRequestKeywords(QueryFieldsKeywords, total=False):
    """Runs in a table."""

    limit: int
    """Most runs to list, the newest first."""


class ShowRunRequestKeywords(StoreFieldKeywords, total=False):
    """One run."""


class CompareRunsRequestKeywords(StoreFieldKeywords, total=False):
    """Several runs."""


class ExportRunsRequestKeywords(QueryFieldsKeywords, total=False):
    """Runs into a file."""

    format: Literal["csv", "parquet", "json"] | None
    """csv, parquet or json (default: by the name of the file)."""


class ImportRunsRequestKeywords(StoreFieldKeywords, total=False):
    """Runs out of a file."""

    format: Literal["csv", "parquet", "json"] | None
    """csv, parquet or json (default: by the name of the file)."""


class DeleteRunsRequestKeywords(StoreFieldKeywords, total=False):
    """Runs to delete."""

    campaign: str | None
    """All runs of this campaign."""


class ValidateRequestKeywords(QueryFieldsKeywords, total=False):
    """Which runs are compared with predictions."""


class ResourcesRequestKeywords(
    BatchOptionKeywords,
    TrainingOptionsKeywords,
    HardwareOptionKeywords,
    TopologyOptionKeywords,
    StrategyOptionsKeywords,
    InputOptionsKeywords,
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


class PairRequestKeywords(
    TrainingOptionsKeywords,
    HardwareOptionKeywords,
    TopologyOptionKeywords,
    NetworkOptionsKeywords,
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


class MeasureRequestKeywords(TypedDict, total=False):
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
    interval: float
    """Sampling interval of resource usage in seconds."""
    store: str | None
    """Store for the run: SQLite file or database URL."""
    no_store: bool
    """Do not store the run."""
    join: str | Path | None
    """Folder shared by the nodes of one job; run `measure` on every node."""
    node: int | None
    """Rank of this node, with `join` (default: from torchrun or Slurm)."""
    nodes: int | None
    """Number of nodes, with `join` (default: from torchrun or Slurm)."""
    wait: float
    """Seconds for which the first node waits for the others, with `join`."""


class CampaignRequestKeywords(TypedDict, total=False):
    """A campaign file, and where it runs."""

    on: str | None
    """Run on a Ray cluster, by default the one of this machine's environment."""
    store: str | None
    """Store of the results: a file or a database URL."""
    limit: int | None
    """Most trials to run this time."""
    dry_run: bool
    """List the trials without running them."""


class ProfileRequestKeywords(BatchOptionKeywords, TrainingOptionsKeywords, PhaseOptionsKeywords, total=False):
    """A model, and where its times come from: this machine or a trace."""

    loss: Literal["eager", "fused"] | None
    """Cross-entropy loss: eager, or fused into one kernel (default: `framework` default)."""
    here: bool
    """Run the model on this machine: its GPU, else its CPU."""
    trace: str | Path | None
    """Read a trace that torch.profiler exported on another machine, .json or .json.gz."""
    on: str | None
    """The device that `trace` was made on, e.g. rtx3090."""
    seconds: float
    """With `here`: about how long to run."""


class CalibrateRequestKeywords(
    BatchOptionKeywords, TrainingOptionsKeywords, PhaseOptionsKeywords, total=False
):
    """Your own timings, this machine, stored runs, or a profiler's trace."""

    loss: Literal["eager", "fused"] | None
    """Cross-entropy loss: eager, or fused into one kernel (default: `framework` default)."""
    here: bool
    """Time operators on this machine: its GPU, or its CPU as `here`."""
    seconds: float
    """With `here`: how long to measure."""
    runs: bool
    """Fit this machine to stored runs of CPU workers."""
    model: str | None
    """With `runs`: only runs of this model. With `trace`: the traced model."""
    device: str | None
    """With `runs`: only runs on this device."""
    campaign: str | None
    """With `runs`: only runs of this campaign."""
    store: str | None
    """With `runs`: the store, a file or a database URL (default: yours)."""
    held_out: str
    """With `runs`: models to test on: `each` left out in turn, or `half` of them or names, never fitted."""
    trace: str | Path | None
    """A trace of torch.profiler, .json or .json.gz, of `model` on `on`."""
    on: str | None
    """With `trace`: the device it was made on."""


class ListCalibrationsRequestKeywords(TypedDict, total=False):
    """All calibrations."""


class CalibrationRequestKeywords(TypedDict, total=False):
    """One calibration."""


class ExportCalibrationRequestKeywords(TypedDict, total=False):
    """One calibration, and the file to write."""


class ImportCalibrationRequestKeywords(TypedDict, total=False):
    """A calibration file."""


class LearnLayersRequestKeywords(TypedDict, total=False):
    """Lines of layers from profiles."""

    predict: str | Sequence[str]
    """Profiles of other models to predict by the lines of the first ones."""
    complexity: Literal["operations", "predicted"]
    """What c is: operations of the published table, or foretrain's own prediction of the layer."""


class LearnResourcesRequestKeywords(TypedDict, total=False):
    """Which runs an Inspector is trained on, and how."""

    runs: str | Path | None
    """Parquet file of runs, as `foretrain runs export` writes it (default: the store)."""
    store: str | None
    """The store of runs, if not the default one."""
    model: str | Sequence[str]
    """Only runs of these models."""
    strategy: str | Sequence[str]
    """Only runs with these strategies, e.g. for a transfer."""
    network: Literal["gcn", "gat", "gin", "mpnn"]
    """Graph network."""
    readout: Literal["set2set", "mean", "sum", "max"]
    """Readout of the graph."""
    grouping: Literal["proportional", "uniform", "none"]
    """Grouping of the operators."""
    start: str | Path | None
    """Transfer this Inspector (its JSON, or `shipped`) instead of training a new one."""
    epochs: int
    """Most epochs of a member."""
    members: int
    """Members of the ensemble."""
    folds: int
    """Folds of models left out for the accuracy."""
    seed: int
    """Seed of all that is random."""
    out: str | Path | None
    """JSON to write, the weights beside it (default: your own Inspector, which `resources` uses)."""
