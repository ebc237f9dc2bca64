"""Steps and forward passes on one GPU: each source as cases of the transfer suite.

Large tables are sampled by fixed rules (a hash of the model's name, every n-th row), never by error.
"""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import Any

from calibration.datasets import kernelbench, lambda_labs, neusight, profet
from foretrain.facts.devices import device, devices
from foretrain.workloads.readers import ModelSource
from validation import mlperf_cases, mlperf_steps
from validation.transfer.case import TransferCase

BLOCKS = Path(__file__).with_name("models.py")
TIMM_SHARE, PROFET_EVERY, LAYERS_EVERY, PROBLEMS_EVERY = 32, 12, 3, 6
_LONG_PROBLEM = 0.5e-3
"""Seconds from which KernelBench's calls are judged: shorter ones show the host, and were in its fit."""
_TIMM_FILES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "benchmark-train-amp-nchw-pt112-cu113-rtx3090": ("rtx3090", {"attention": "eager"}),
    "benchmark-train-amp-nhwc-pt112-cu113-rtx3090": (
        "rtx3090", {"attention": "eager", "channels_last": True},
    ),
    "benchmark-infer-amp-nhwc-pt240-cu124-rtx3090": ("rtx3090", {"channels_last": True}),
    "benchmark-infer-amp-nhwc-pt240-cu124-rtx4090": ("rtx4090", {"channels_last": True}),
    "benchmark-infer-amp-nchw-pt291-cu128-rtx4090": ("rtx4090", {}),
    "benchmark-infer-amp-nchw-pt291-cu128-rtx4090-dynamo": ("rtx4090", {"compile": True}),
    "benchmark-infer-amp-nchw-pt291-cu130-rtxpro6000maxq": ("rtxpro6000-maxq", {}),
    "benchmark-infer-amp-nchw-pt291-cu130-rtxpro6000maxq-dynamo": ("rtxpro6000-maxq", {"compile": True}),
}  # fmt: skip
_BLOCKS = {
    "OPT-350": "opt_350m_block",
    "OPT-30": "opt_30b_block",
    "GPT-Neo-2.7": "gpt_neo_block",
    "LLAMA-3-8": "llama3_8b_block",
}
_LLAMA, _LLAMA_TOKENS = "LLAMA-3-8", "8192"
"""Sailor's Llama ran on 8,192 tokens, not on 2,048: its final norm, seven passes of FP32 over hidden states,
takes 0.37 ms on GH200 and 0.7 ms on A100, and the output layer on A100 and V100 has OPT-30B's FLOP/s with the
50,257 tokens of GPT-2's vocabulary. Its norms are not Megatron's fused ones."""
_DLE_MODELS = {
    "resnet50v1.5": "resnet50",
    "resnext101-32x4d": "timm:resnext101_32x4d",
    "se-resnext101-32x4d": "timm:seresnext101_32x4d",
}


def lambda_(data: Path) -> Iterator[TransferCase]:
    """Lambda's runs of tasks with a graph: ResNet-50, BERT on SQuAD and NCF, batch published.

    BERT as NVIDIA's run_squad.py has it: in FP16 Apex O2 (half weights with FP32 masters) and FusedAdam.
    """
    for run in lambda_labs.read(data).runs:
        if run.task not in lambda_labs.TASKS or not run.batch_known:
            continue
        has_tf32 = device(run.device_id).sheet.has("tf32_tensor_flop_per_second")
        precision = "fp16" if run.precision == "fp16" else "tf32" if has_tf32 else "fp32"
        batch = max(2, round(run.batch))
        settings: dict[str, Any] = {"on": run.device_id, "batch": batch, "precision": precision}
        model: ModelSource | None = None
        if run.task.startswith("bert"):
            model = lambda_labs.SquadBert(run.task)
            settings |= {"seq_len": 384, "attention": "eager", "optimizer": "adam"}
            if precision == "fp16":
                settings |= {"optimizer": "adamw-fused", "master_weights": True}
        else:
            optimizer = "momentum" if run.task == "resnet50" else "adam"
            settings |= {"model": run.task, "optimizer": optimizer}
        yield TransferCase(
            "lambda",
            f"{run.task} {precision} batch {batch} on {run.device_id}, PyTorch {run.software}",
            settings,
            run.seconds * batch,
            sets=("Lambda", f"Lambda, {run.task}", f"Lambda, {precision}"),
            family=run.task,
            model=model,
        )


def timm(data: Path) -> Iterator[TransferCase]:
    """Models of timm's benchmark chosen by a hash of their name, the same in every file."""
    for file, (gpu, options) in _TIMM_FILES.items():
        if gpu not in devices():
            continue
        mode = "train" if "-train-" in file else "infer"
        compiled = ", compiled" if "compile" in options else ""
        era = "torch 2.9" if "pt291" in file else "torch 2.4" if "pt240" in file else "torch 1.12"
        kind = "training" if mode == "train" else "forward"
        chosen = f"timm {kind} {era}, {gpu}{compiled}"
        for row in _rows(data / "timm" / f"{file}.csv"):
            if int(hashlib.sha256(row["model"].encode()).hexdigest(), 16) % TIMM_SHARE:
                continue
            batch, size = int(row[f"{mode}_batch_size"]), int(row[f"{mode}_img_size"])
            settings = {
                "model": f"timm:{row['model']}", "on": gpu, "batch": batch, "image_size": size,
                "precision": "fp16", "dataset": "synthetic", **options,
                **({"forward_only": True} if mode == "infer" else {"optimizer": "momentum"}),
            }  # fmt: skip
            yield TransferCase(
                "timm",
                f"{row['model']} at {size}, batch {batch}, {chosen}",
                settings,
                batch / float(row[f"{mode}_samples_per_sec"]),
                sets=(chosen,),
                family=row["model"].split("_")[0],
            )


def profet_(data: Path) -> Iterator[TransferCase]:
    """Every 12th configuration of PROFET."""
    for step in profet.read(data)[::PROFET_EVERY]:
        yield TransferCase(
            "profet",
            f"{step.model} {step.image_size} px batch {step.batch} on {step.device_id}",
            {
                "on": step.device_id, "batch": step.batch, "image_size": step.image_size,
                "precision": "fp32", "optimizer": "sgd", "framework": "keras",
            },
            step.seconds,
            sets=("PROFET", f"PROFET, {step.device_id}"),
            family=step.model,
            framework="keras",
            model=profet.ProfetModel(step.model),
        )  # fmt: skip


def mlperf(data: Path) -> Iterator[TransferCase]:
    """MLPerf's submissions on one node whose throughput was logged, with the stack of NVIDIA's code."""
    stack = mlperf_steps.SUBMITTED
    for one in mlperf_cases.read(data).submissions:
        if one.throughput is None or one.is_open:
            continue
        is_bert = one.benchmark == mlperf_cases.BERT
        has_fp8 = device(one.device_id).sheet.has("fp8_tensor_flop_per_second")
        is_fp8 = has_fp8 and one.benchmark in stack.fp8
        settings: dict[str, Any] = {
            "model": mlperf_steps._MASKED_BERT if is_bert else "resnet50",
            "on": one.hardware,
            "strategy": mlperf_steps._strategy(one, stack),
            "batch": one.batch // one.devices,
            "precision": "fp8" if is_fp8 else "fp16",
            "optimizer": "adamw" if is_bert else "momentum",
            "channels_last": not is_bert,
            "compile": stack.fused_kernels,
            "cuda_graphs": stack.cuda_graphs,
            "master_weights": stack.master_weights and not is_fp8,
        }
        if is_bert:
            settings["seq_len"] = mlperf_steps._mean_length()
        if one.nodes > 1 and one.network:
            settings["network"] = one.network
        yield TransferCase(
            "mlperf", one.name, settings, one.batch / one.throughput,
            sets=("MLPerf", f"MLPerf, {mlperf_cases.BENCHMARKS[one.benchmark]}"),
            family=one.benchmark, framework="mlperf",
        )  # fmt: skip


def dle(data: Path) -> Iterator[TransferCase]:
    """Forward passes of NVIDIA's DeepLearningExamples on V100 and T4."""
    for row in _rows(data / "dle" / "forward_v100_t4.csv"):
        words = row["options"].split()
        settings: dict[str, Any] = {
            "model": _DLE_MODELS[row["model"]], "on": row["device"], "batch": int(row["batch"]),
            "precision": row["precision"], "forward_only": True, "image_size": 224,
            "channels_last": "channels_last" in words,
        }  # fmt: skip
        small = int(row["batch"]) <= 8
        yield TransferCase(
            "dle",
            f"{row['model']} {row['precision']} batch {row['batch']} on {row['device']}",
            settings,
            float(row["seconds"]),
            sets=(f"DeepLearningExamples forward, batch {'<= 8' if small else '> 8'}",),
            family=row["model"],
        )


def neu_sight(data: Path) -> Iterator[TransferCase]:
    """NeuSight's whole models, FP32; its single operators are in shipped fits."""
    for each in neusight.read_steps(data):
        mode = "training" if each.is_training else "compiled" if each.is_compiled else "forward"
        settings = {
            "model": each.model, "on": each.device_id, "batch": each.batch, "seq_len": each.seq_len,
            "precision": "fp32", "attention": "eager", "compile": each.is_compiled,
            **({"no_optimizer": True} if each.is_training else {"forward_only": True}),
        }  # fmt: skip
        yield TransferCase(
            "neusight",
            f"{each.model} {mode} {each.batch} x {each.seq_len} on {each.device_id}",
            settings,
            each.seconds,
            sets=(f"NeuSight {mode}",),
            family=each.model,
        )


def kernel_bench(data: Path) -> Iterator[TransferCase]:
    """KernelBench eager above half a millisecond: whole networks, and every 6th operator or chain.

    FP32, where PyTorch runs convolutions in TF32; single convolutions and short calls are in shipped fits.
    """
    known = {problem.key: problem for problem in kernelbench.problems(data)}
    seconds: dict[tuple[tuple[str, int, str], str], list[float]] = {}
    for time in kernelbench.times(data, (kernelbench.EAGER,)):
        if time.key in known:
            seconds.setdefault((time.key, time.device_id), []).append(time.seconds)
    built = {
        key: problem.has_batch and kernelbench.example_of(problem) is not None
        for key, problem in known.items()
    }
    long = {
        (key, gpu): median(times)
        for (key, gpu), times in sorted(seconds.items())
        if built[key] and median(times) >= _LONG_PROBLEM and not _is_fitted(known[key])
    }
    networks = [each for each in long if each[0][1] == _NETWORKS]
    others = [each for each in long if each[0][1] != _NETWORKS][::PROBLEMS_EVERY]
    for key, gpu in (*networks, *others):
        problem = known[key]
        is_network = problem.level == _NETWORKS
        has_tf32 = device(gpu).sheet.has("tf32_tensor_flop_per_second")
        convolves = (is_network and not problem.title.endswith("MLP")) or "conv" in problem.name.lower()
        what = "networks" if is_network else "operators and chains"
        yield TransferCase(
            "kernelbench",
            f"{problem.name} ({problem.version}) on {gpu}",
            {
                "on": gpu, "batch": problem.batch, "forward_only": True, "dataset": "synthetic",
                "precision": "tf32" if convolves and has_tf32 else "fp32",
            },
            long[key, gpu],
            sets=("KernelBench forward", f"KernelBench forward, {what}"),
            family=problem.title if is_network else "operators",
            model=kernelbench.ProblemModel(problem),
        )  # fmt: skip


_NETWORKS = 3


def _is_fitted(problem: kernelbench.Problem) -> bool:
    """Whether calibrations use its long calls: single convolutions are in those of TF32 and depthwise."""
    return problem.level == 1 and "conv" in problem.name


def sailor_layers(data: Path) -> Iterator[TransferCase]:
    """Forward and backward of one block in Megatron-DeepSpeed, one GPU: every 3rd configuration."""
    passes: dict[tuple[str, str, str, str], dict[str, float]] = {}
    for row in _rows(data / "sailor" / "layer_times.csv"):
        if row["layer"] == "block" and row["tensor_parallel"] == "1" and row["phase"] != "update":
            key = (row["device"], row["model"], row["seq_len"], row["micro_batch"])
            passes.setdefault(key, {})[row["phase"]] = float(row["seconds"])
    whole = [key for key, phases in passes.items() if set(phases) == {"forward", "backward"}]
    for key in whole[::LAYERS_EVERY]:
        gpu, model, length, batch = key
        if model == _LLAMA:
            length = _LLAMA_TOKENS
        has_tf32 = device(gpu).sheet.has("tf32_tensor_flop_per_second")
        runs_tf32 = model in ("OPT-350", "GPT-Neo-2.7") or gpu == "gh200"
        precision = "tf32" if has_tf32 and runs_tf32 else "fp32"
        yield TransferCase(
            "sailor_layers",
            f"{model} block, {batch} x {length}, {precision} on {gpu}",
            {
                "model": f"{BLOCKS}:{_BLOCKS[model]}", "on": gpu, "batch": int(batch), "seq_len": int(length),
                "precision": precision, "attention": "eager", "no_optimizer": True,
                **({} if model == _LLAMA else {"framework": "megatron-deepspeed"}),
            },
            sum(passes[key].values()),
            sets=("Sailor layers", f"Sailor layers, {precision}"),
            family=model,
            framework="megatron-deepspeed",
        )  # fmt: skip


def _rows(file: Path) -> Iterator[dict[str, str]]:
    with file.open(newline="", encoding="utf-8") as lines:
        yield from csv.DictReader(lines)
