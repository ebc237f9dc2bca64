"""Small scheduling problems as files, with numbers that can be followed by hand."""

from __future__ import annotations

from pathlib import Path

CLUSTER = """
max_nodes: 1
node_types:
  one: {gpu: k80, gpus: 1, usd_per_hour: 3600}
"""
JOBS = """job,submit_seconds,deadline_seconds,weight_usd_per_second
a,0,12,2
b,4,15,2
"""
TIMES = """job,node_type,gpus,seconds
a,one,1,10
b,one,1,10
"""


def written(folder: Path, jobs: str = JOBS, cluster: str = CLUSTER, times: str = TIMES) -> list[str]:
    """The files of a problem, as arguments of `simulate`."""
    places = {"jobs.csv": jobs, "cluster.yaml": cluster, "times.csv": times}
    for name, text in places.items():
        (folder / name).write_text(text, encoding="utf-8")
    return [
        str(folder / "jobs.csv"), "--cluster", str(folder / "cluster.yaml"), "--times",
        str(folder / "times.csv"),
    ]  # fmt: skip
