"""The script that rebuilds the shipped offers from a price snapshot."""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "scripts" / "refresh_offers.py"
HEAD = "cloud,InstanceType,AcceleratorName,AcceleratorCount,Region,vCPUs,MemoryGiB,Price,SpotPrice"
ROW = "lambda,gpu_1x_a10,A10,1,us-east-1,30,200,1.3,"


def test_offers_that_differ_from_the_snapshot_are_named(tmp_path: Path) -> None:
    (tmp_path / "prices").mkdir()
    with gzip.open(tmp_path / "prices" / "gpu_offers_2027_01.csv.gz", "wt", encoding="utf-8") as lines:
        lines.write(f"{HEAD}\n{ROW}\n")
    run = subprocess.run(
        [sys.executable, SCRIPT, "--data", tmp_path, "--check"], capture_output=True, text=True, check=False
    )
    assert run.returncode == 1
    assert run.stderr == "the shipped offers of lambda are not those of gpu_offers_2027_01.csv.gz\n"
