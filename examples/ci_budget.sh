#!/usr/bin/env bash
# Fail a pipeline (exit 1) if a training job would exceed a budget of step time, memory or money.
#
#     MAX_STEP_SECONDS=0.1 MAX_MEMORY_GIB=20 MAX_USD=5 bash ci_budget.sh \
#         resnet18 --on aws:g5.xlarge --batch 64 --samples 1281167 --epochs 1
#
# The arguments are those of `foretrain predict`. Limits that are not set are not checked; a job that does not fit in
# memory always fails. QUANTILE=p90 checks the unlucky case in place of the median.
set -euo pipefail

answer=$(foretrain predict "$@" --no-advice --check --json)
ANSWER=$answer python3 - <<'PYTHON'
import json, os, sys

answer, quantile = json.loads(os.environ["ANSWER"]), os.environ.get("QUANTILE", "p50")
job = answer.get("job") or {}
checks = {
    "MAX_STEP_SECONDS": (answer["step"]["seconds"], 1, "s a step"),
    "MAX_MEMORY_GIB": (answer["memory"]["bytes"], 2**30, "GiB on each GPU"),
    "MAX_USD": (job.get("usd"), 1, "USD for the job"),
}
failed = False
for name, (amount, unit, words) in checks.items():
    limit = os.environ.get(name)
    if limit is None:
        continue
    if amount is None:
        sys.exit(f"{name} needs the length of the job (--steps or --epochs) on machines with a price")
    predicted, exceeds = amount[quantile] / unit, amount[quantile] / unit > float(limit)
    print(f"{'EXCEEDED' if exceeds else 'ok'}: {predicted:,.3g} {words}, limit {float(limit):,.3g}")
    failed |= exceeds
sys.exit(failed)
PYTHON
