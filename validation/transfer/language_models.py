"""Language models on many GPUs (and adapters on one): each source as cases of the transfer suite.

The readers of other suites are used where there are any. Options that a source leaves open are those of its
framework: Megatron keeps BF16 weights with FP32 masters, adds gradients up in FP32, divides the optimizer
state over replicas and, with tensor parallelism, the sequence too.
"""

from __future__ import annotations

import csv
import hashlib
import json
import shlex
import statistics
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from calibration.datasets import ultrascale, vtrain
from validation import did_it_run_suite, layout_memory_suite, peft_suite, published_suite
from validation.transfer.case import LONG, TransferCase

ROOT = Path(__file__).parents[2]
MODELS = ROOT / "validation" / "data" / "models"
BUILT = ROOT / "build" / "transfer" / "models"
MEGATRON: Mapping[str, Any] = {
    "weights": "bf16",
    "master_weights": True,
    "gradients": "fp32",
    "optimizer": "adamw-fused",
    "attention": "cudnn",
    "framework": "megatron",
}
LORA: Mapping[str, Any] = {
    "lora": "r=16,targets=q_proj+k_proj+v_proj",
    "weights": "bf16",
    "optimizer": "adamw-fused",
    "attention": "cudnn",
}
"""Megatron-Bridge's recipes of Llama 3 70B adapt `linear_qkv` alone; base and adapters are BF16."""
ULTRASCALE_EVERY, VTRAIN_EVERY = 14, 36
_ASKED = (
    "device", "task", "model", "precision", "gpus", "global_batch", "micro_batch", "seq_len", "fsdp", "tp",
    "pp", "cp", "vp", "ep",
)  # fmt: skip
_BRIDGE_SCALINGS = {"FP8-CS": "current", "FP8-MX": "block"}
_REST = "allocator rounding and fragmentation"
_PROCESS = frozenset(("framework context", "communicators", _REST))
"""What nvidia-smi counts beside PyTorch's tensors."""
_LLAMA_405B = {
    "model_type": "llama", "hidden_size": 16_384, "intermediate_size": 53_248, "num_hidden_layers": 126,
    "num_attention_heads": 128, "num_key_value_heads": 8, "vocab_size": 128_256,
    "max_position_embeddings": 131_072, "tie_word_embeddings": False,
}  # fmt: skip
_LLAMA_70B = {
    **_LLAMA_405B, "hidden_size": 8192, "intermediate_size": 28_672, "num_hidden_layers": 80,
    "num_attention_heads": 64,
}  # fmt: skip
_DEEPSEEK_V3 = {
    "model_type": "deepseek_v3", "hidden_size": 7168, "intermediate_size": 18_432,
    "moe_intermediate_size": 2048, "num_hidden_layers": 61, "num_attention_heads": 128,
    "num_key_value_heads": 128, "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8,
    "n_group": 8, "topk_group": 4, "first_k_dense_replace": 3, "q_lora_rank": 1536, "kv_lora_rank": 512,
    "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "vocab_size": 129_280,
    "max_position_embeddings": 4096, "tie_word_embeddings": False,
}  # fmt: skip
_GPT_OSS = {
    "model_type": "gpt_oss", "hidden_size": 2880, "intermediate_size": 2880, "num_hidden_layers": 36,
    "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64, "num_local_experts": 128,
    "num_experts_per_tok": 4, "sliding_window": 128, "vocab_size": 201_088,
    "max_position_embeddings": 131_072, "tie_word_embeddings": False,
}  # fmt: skip
_QWEN3_30B = {
    "model_type": "qwen3_moe", "hidden_size": 2048, "intermediate_size": 6144, "moe_intermediate_size": 768,
    "num_hidden_layers": 48, "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128,
    "num_experts": 128, "num_experts_per_tok": 8, "norm_topk_prob": True, "vocab_size": 151_936,
    "max_position_embeddings": 40_960, "tie_word_embeddings": False,
}  # fmt: skip
_QWEN3_235B = {
    **_QWEN3_30B, "hidden_size": 4096, "intermediate_size": 12_288, "moe_intermediate_size": 1536,
    "num_hidden_layers": 94, "num_attention_heads": 64,
}  # fmt: skip
ARCHITECTURES: Mapping[str, Mapping[str, Any]] = {
    "LLAMA3_70B": _LLAMA_70B,
    "LLAMA3.1_405B": _LLAMA_405B,
    "DeepSeekV3": _DEEPSEEK_V3,
    "GPT OSS 120B": _GPT_OSS,
    "Qwen3_30B_a3B": _QWEN3_30B,
    "Qwen3_235B_a22B": _QWEN3_235B,
}
"""Models of Megatron-Bridge's table by their public config.json. Nemotron 3 and DeepSeek-V4 mix kinds of
layers that no installed library has; DeepSeek-V3's extra layer that predicts a second token is left out."""


# Hugging Face configurations


def hf_model(config: Mapping[str, Any]) -> str:
    """A model of a configuration, as `predict` names it; the file is written once."""
    text = json.dumps(config, sort_keys=True)
    file = BUILT / f"{config['model_type']}-{hashlib.sha256(text.encode()).hexdigest()[:12]}.json"
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return f"hf:{file}"


def active_parameters(config: Mapping[str, Any]) -> float:
    """Parameters a token is multiplied with: of its experts only those it is sent to; no input embedding."""
    if config["model_type"] == "gpt2":
        width, layers = config["n_embd"], config["n_layer"]
        return float(12 * layers * width**2 + config["vocab_size"] * width)
    width, layers, heads = (config[k] for k in ("hidden_size", "num_hidden_layers", "num_attention_heads"))
    if "kv_lora_rank" in config:
        q, kv = config["q_lora_rank"], config["kv_lora_rank"]
        nope, rope, value = config["qk_nope_head_dim"], config["qk_rope_head_dim"], config["v_head_dim"]
        attention = width * q + q * heads * (nope + rope) + width * (kv + rope)
        attention += kv * heads * (nope + value) + heads * value * width
    else:
        each = config.get("head_dim", width // heads)
        attention = width * each * (2 * heads + 2 * config["num_key_value_heads"])
    dense = 3 * width * config["intermediate_size"]
    if "num_experts_per_tok" not in config:
        return float(layers * (attention + dense) + config["vocab_size"] * width)
    hidden = config.get("moe_intermediate_size", config["intermediate_size"])
    used = config["num_experts_per_tok"] + config.get("n_shared_experts", 0)
    first = config.get("first_k_dense_replace", 0)
    sparse = (layers - first) * (attention + 3 * width * hidden * used)
    return float(first * (attention + dense) + sparse + config["vocab_size"] * width)


# Sources


def llm_foundry(data: Path) -> Iterator[TransferCase]:
    """MPT by llm-foundry: FSDP, flash attention."""
    with (data / "llm_foundry" / "mpt_throughput.csv").open(newline="", encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            asked = did_it_run_suite.mpt_run(row)
            tokens = int(row["seq_len"]) * int(row["global_batch"])
            width, layers = int(row["width"]), int(row["layers"])
            rate = float(row["tokens_per_second_per_gpu"]) * int(row["gpus"])
            is_fp8, is_long = asked.settings["precision"] == "fp8", int(row["seq_len"]) >= LONG
            gpu = "H100" if row["gpu"].startswith("h100") else "A100"
            chosen = "FP8" if is_fp8 else ">= 16k" if is_long else gpu
            yield TransferCase(
                "llm_foundry",
                asked.name,
                {**asked.settings, "attention": "flash1", "framework": "composer"},  # Triton kernels of 2023
                tokens / rate,
                sets=(f"MPT {chosen}", *((f"MPT >= 16k {gpu}",) if is_long and not is_fp8 else ())),
                family="MPT",
                framework="composer",
                parameters=12.0 * layers * width**2 + int(row["vocabulary"]) * width,
                tokens=float(tokens),
            )


def megatron_bridge(data: Path) -> Iterator[TransferCase]:
    """Megatron-Bridge's table, but for four-bit rows and models no library here has.

    Rows that differ in nothing but the release are one case, at their median speed.
    """
    rows: dict[tuple[str, ...], list[dict[str, str]]] = {}
    for row in _rows(data / "megatron_bridge" / "h100_gb200.csv"):
        if row["model"].split(" (")[0] in ARCHITECTURES and row["precision"] != "NVFP4":
            asked = {**row, "fsdp": row["fsdp"] or "0", "ep": row["ep"] or "1", "vp": row["vp"] or "1"}
            rows.setdefault(tuple(asked[key] for key in _ASKED), []).append(asked)
    for same in rows.values():
        rate = statistics.median(float(row["tokens_per_second_per_gpu"]) for row in same)
        yield _bridge_case(same[0], rate, len(same))


def _bridge_case(row: Mapping[str, str], rate: float, releases: int) -> TransferCase:
    name = row["model"].split(" (")[0]
    config = ARCHITECTURES[name]
    tensor, pipeline, context, expert, chunks, fsdp = (
        int(row[key] or 1) for key in ("tp", "pp", "cp", "ep", "vp", "fsdp")
    )
    gpus, batch, micro_batch, length = (
        int(row[key]) for key in ("gpus", "global_batch", "micro_batch", "seq_len")
    )
    replicas = gpus // (tensor * pipeline * context)
    is_lora = row["task"] == "lora"
    parts = [f"tp={tensor},sp" if tensor > 1 else "tp=1", f"pp={pipeline}", f"dp={replicas}"]
    parts += [f"cp={context}"] * (context > 1) + [f"ep={expert}"] * (expert > 1)
    parts += [f"chunks={chunks}"] * (chunks > 1 and pipeline > 1)
    parts += [] if is_lora else ["zero=3" if fsdp > 1 else "zero=1"]
    node = 8 if row["device"] == "h100-sxm" else 64  # of an NVL72, whose GPUs all share one NVLink domain
    on = f"{row['device']}:{min(gpus, node)}" + (f"x{gpus // node}" if gpus > node else "")
    precision = "bf16" if row["precision"] == "BF16" else "fp8"
    settings: dict[str, Any] = {
        "model": hf_model(
            {**config, "max_position_embeddings": max(length, config["max_position_embeddings"])}
        ),
        "on": on,
        "strategy": ",".join(parts),
        "precision": precision,
        "global_batch": batch,
        "micro_batches": batch // (replicas * micro_batch),
        "seq_len": length,
        **(LORA if is_lora else MEGATRON),
        "framework": "nemo",
    }
    if precision == "fp8":
        settings["fp8_scaling"] = _BRIDGE_SCALINGS[row["precision"]]
    if gpus > node:
        settings["network"] = f"infiniband-ndr:{node}"
    is_sparse = "num_experts_per_tok" in config
    gpu = "H100" if row["device"] == "h100-sxm" else "GB200"
    tokens = float(batch * length)
    kind = "MoE" if is_sparse else "dense"
    return TransferCase(
        "megatron_bridge",
        f"{row['task']} {row['model']} ({releases} releases), {row['precision']}, "
        f"{','.join(parts)}, {batch} x {length} on {gpus} {row['device']}",
        settings,
        tokens / (rate * gpus),
        sets=(f"Megatron-Bridge {gpu} {kind}", f"Megatron-Bridge {row['precision']}"),
        family=name,
        framework="megatron",
        parameters=active_parameters(config) * (2 / 3 if is_lora else 1),  # no gradients of frozen weights
        tokens=tokens,
    )


def simumax(data: Path) -> Iterator[TransferCase]:
    """SimuMax's runs of Megatron on eight B200, time and memory.

    Its launcher (simu_tools/megatron_scripts) leaves Megatron's `--overlap-grad-reduce` and
    `--overlap-param-gather` off, as is Megatron's default: gradients are reduced after the last micro-batch.
    Its guide installs Transformer Engine, whose attention on Blackwell is cuDNN's; the table says `flash`.
    """
    for file in ("llama3_70b_12_layers_b200.csv", "pp_cp_moe_b200.csv"):
        for row in _rows(data / "simumax" / file):
            layout = dict(part.partition("=")[::2] for part in row["strategy"].split(","))
            kind = next((name for name in ("ep", "cp", "pp", "tp") if name in layout), "tp")
            label = {"ep": "MoE", "cp": "CP", "pp": "PP", "tp": "TP"}[kind]
            row["strategy"] += ",overlap=no"
            row["options"] = row["options"].replace("--attention flash", "--attention cudnn")
            yield _listed_case(row, "simumax", f"SimuMax {label}", "megatron", frozenset())


def sailor(data: Path) -> Iterator[TransferCase]:
    """OPT-350M by Megatron-DeepSpeed on GH200, time and memory.

    The model, the layers of the stages and the optimizer (DeepSpeed's AdamW is its fused one) are those of
    sailor's own scripts (third_party/Megatron-DeepSpeed/run.sh); memory is that of nvidia-smi.
    """
    for row in _rows(data / "sailor" / "opt350_gh200.csv"):
        config = json.loads(row["model_config_json"]) | layout_memory_suite.OPT
        as_run = row | {
            "model_config_json": json.dumps(config),
            "strategy": layout_memory_suite.sailor_strategy(row["strategy"], config["n_layer"]),
            "options": row["options"].replace("adamw", "adamw-fused"),
        }
        yield _listed_case(as_run, "sailor", "OPT on GH200", "megatron-deepspeed", _PROCESS)


def _listed_case(
    row: Mapping[str, str], source: str, chosen: str, framework: str, held: frozenset[str]
) -> TransferCase:
    config = json.loads(row["model_config_json"])
    settings: dict[str, Any] = {
        "model": hf_model(config),
        "on": row["device"],
        "strategy": row["strategy"],
        "precision": row["precision"],
        "global_batch": int(row["global_batch"]),
        "micro_batches": int(row["micro_batches"]),
        "seq_len": int(row["seq_len"]),
        "framework": framework,
        **_older_options(row["options"], row["precision"]),
    }
    return TransferCase(
        source,
        f"{row['row_id']}, {row['strategy']}, {row['global_batch']} x {row['seq_len']} on {row['device']}",
        settings,
        float(row["measured_value"]),
        float(row["measured_memory_bytes"]),
        sets=(chosen,),
        family=config["model_type"],
        framework=framework,
        parameters=active_parameters(config),
        tokens=float(int(row["global_batch"]) * int(row["seq_len"])),
        parts_held=held,
    )


def _older_options(text: str, precision: str) -> dict[str, Any]:
    """Options in the words of an older command line."""
    words = shlex.split(text)
    settings: dict[str, Any] = {}
    while words:
        match words.pop(0):
            case "--half-weights":
                settings |= {"weights": precision, "master_weights": True}
            case "--full-gradients":
                settings["gradients"] = "fp32"
            case word:
                settings[word.removeprefix("--")] = words.pop(0)
    return settings


def ultra_scale(data: Path) -> Iterator[TransferCase]:
    """Every 14th layout of the ultra-scale playbook that ran, in the order of its table.

    At most 16 nodes, tensor parallelism on a node: beyond, runs stalled to a fiftieth of their speed, and
    what differs in nothing but ZeRO's stage lies up to a factor of 3 apart.
    """
    ran = [
        run
        for run in ultrascale.read(data)
        if run.seconds is not None and ultrascale.can_run(run) and run.nodes <= 16 and run.tensor <= 8
    ]
    for run in ran[::ULTRASCALE_EVERY]:
        asked = did_it_run_suite.layout(run)
        yield TransferCase(
            "ultrascale",
            asked.name,
            asked.settings,
            run.seconds,
            run.memory_bytes,
            sets=("ultra-scale", f"ultra-scale, {'' if run.pipeline > 1 else 'no '}pipeline"),
            family="Llama",
            framework="nanotron",
            parameters=_nanotron_parameters(run.model),
            tokens=float(run.tokens),
            parts_held=frozenset((_REST,)),
            is_first_stage=True,  # nanotron logs the memory of rank 0
        )  # fmt: skip


def _nanotron_parameters(model: str) -> float:
    config = json.loads((MODELS / f"nanotron-{model.lower()}.json").read_text(encoding="utf-8"))
    return active_parameters({"num_key_value_heads": config["num_attention_heads"], **config})


def v_train(data: Path) -> Iterator[TransferCase]:
    """Every 36th iteration of vTrain's Megatron-DeepSpeed on one node of A100."""
    for run in vtrain.read_steps(data)[::VTRAIN_EVERY]:
        config = {
            "model_type": "gpt2", "n_embd": run.width, "n_layer": run.layers, "n_head": run.heads,
            "n_positions": run.seq_len, "vocab_size": 51_200, "activation_function": "gelu",
        }  # fmt: skip
        strategy = f"tp={run.tensor},pp={run.pipeline},dp={run.data},overlap=no"
        settings = {
            "model": hf_model(config),
            "on": f"{vtrain.DEVICE}:{run.devices}",
            "strategy": strategy,
            "precision": "fp16",
            "weights": "fp16",
            "master_weights": True,
            "optimizer": "adamw-fused",
            "framework": "megatron-deepspeed",
            "attention": "eager",
            "checkpoint_activations": True,
            "global_batch": run.batch,
            "micro_batches": run.micro_batches,
            "seq_len": run.seq_len,
        }
        yield TransferCase(
            "vtrain",
            f"GPT of {run.shape}, {strategy}, {run.micro_batches} x {run.micro_batch} on {run.devices}",
            settings,
            run.seconds,
            sets=("vTrain single node",),
            family="GPT",
            framework="megatron-deepspeed",
            parameters=active_parameters(config),
            tokens=float(run.batch * run.seq_len),
        )


def peft(data: Path) -> Iterator[TransferCase]:
    """PEFT's methods with a request of their own, on one L40S: times at the mean length."""
    methods, _ = peft_suite.read(data / peft_suite.FILE)
    length = round(statistics.median(method.tokens / method.batch for method in methods))
    for method in methods:
        adapted = {"weights": "bf16"} if method.lora is None else {"lora": method.lora, "autocast": False}
        share = 1.0 if method.lora is None else 2 / 3
        settings = {
            "model": peft_suite.MODEL, "on": peft_suite.DEVICE, "batch": method.batch, "precision": "bf16",
            **adapted,
        }  # fmt: skip
        kind = "PEFT" if method.is_exact else "PEFT, other adapters as LoRA"
        yield TransferCase(
            "peft", method.name, {**settings, "seq_len": length}, method.seconds, sets=(kind,),
            family="Llama", framework="hf", parameters=3.2e9 * share, tokens=float(method.batch * length),
        )  # fmt: skip
        yield TransferCase(
            "peft", f"{method.name}, memory", {**settings, "seq_len": method.longest},
            memory_bytes=method.reserved_bytes, sets=(kind,), family="Llama", framework="hf",
            parts_held=frozenset((_REST,)),
        )  # fmt: skip


def published(data: Path) -> Iterator[TransferCase]:
    """The published throughputs, several sources by several frameworks."""
    del data
    for figure in published_suite.read(published_suite.FIGURES):
        row = figure.row
        samples = int(row["batch"]) * figure.gpus
        units = samples * (int(row["sequence"]) if row["unit"].startswith("tokens") else 1)
        rate = figure.published * (figure.gpus if row["unit"].endswith("/GPU") else 1)
        place = "one GPU" if figure.gpus == 1 else "many GPUs"
        yield TransferCase(
            "published",
            f"{row['source']}: {figure.name}",
            figure.settings,
            units / rate,
            sets=("published", f"published, {place}"),
            family=row["area"],
            framework=row["source"],
        )


def _rows(file: Path) -> Iterator[dict[str, str]]:
    with file.open(newline="", encoding="utf-8") as lines:
        yield from csv.DictReader(lines)
