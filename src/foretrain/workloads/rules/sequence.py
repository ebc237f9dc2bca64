"""Fused attention and fused recurrent networks."""

from __future__ import annotations

from collections.abc import Mapping

from foretrain.workloads.ops import Kind, Work
from foretrain.workloads.rules.site import Rule, Site

GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}


def _attention_dims(site: Site, first: int) -> dict[str, int]:
    query, key, value = (site.input(first + offset).shape for offset in range(3))
    heads = query[-3] if len(query) > 2 else 1
    batch = 1
    for size in query[:-3]:
        batch *= size
    return {
        "batch": batch,
        "heads": heads,
        "kv_heads": key[-3] if len(key) > 2 else 1,
        "queries": query[-2],
        "keys": key[-2],
        "head": query[-1],
        "value_head": value[-1],
        "causal": int(bool(site.settings["causal"])),
        "flash": int(site.settings["algorithm"] == "flash"),
        "dropout": int(site.settings["dropout"] > 0),
    }


def _attention(site: Site) -> tuple[Work, ...]:
    """Two products over the score matrix: 2 · b · h · q · k · (head + value head), half of it if causal."""
    return (_attention_work(site, _attention_dims(site, 0), products=2.0),)


def _attention_backward(site: Site) -> tuple[Work, ...]:
    """Five products: the scores again, and the gradients of scores, query, key and value."""
    return (_attention_work(site, _attention_dims(site, 1), products=5.0),)


def _attention_work(site: Site, dims: dict[str, int], products: float) -> Work:
    scores = float(dims["batch"] * dims["heads"] * dims["queries"] * dims["keys"])
    share = 0.5 if dims["causal"] else 1.0
    flop = products * scores * (dims["head"] + dims["value_head"]) * share
    return Work(Kind.ATTENTION, site.direction, dims, site.dtype, flop, site.read_bytes, site.write_bytes)


def _rnn_dims(site: Site) -> dict[str, int]:
    inputs = site.input(0 if site.name == "foretrain.rnn" else 1).shape
    steps, batch = (inputs[1], inputs[0]) if site.settings["batch_first"] else (inputs[0], inputs[1])
    return {
        "steps": steps,
        "batch": batch,
        "in": inputs[2],
        "hidden": int(site.settings["hidden"]),
        "layers": int(site.settings["layers"]),
        "directions": 2 if site.settings["bidirectional"] else 1,
        "gates": GATES[site.settings["mode"]],
    }


def _rnn(site: Site) -> tuple[Work, ...]:
    """Per layer and direction 2 · steps · batch · gates · hidden · (inputs + hidden); twice that backward."""
    dims = _rnn_dims(site)
    first = dims["in"] + dims["hidden"]
    later = dims["hidden"] * dims["directions"] + dims["hidden"]
    columns = first + later * (dims["layers"] - 1)
    flop = 2.0 * dims["steps"] * dims["batch"] * dims["gates"] * dims["hidden"] * dims["directions"] * columns
    if site.name == "foretrain.rnn_backward":
        flop *= 2
    kernels = dims["steps"] * dims["layers"]
    return (
        Work(Kind.RNN, site.direction, dims, site.dtype, flop, site.read_bytes, site.write_bytes, kernels),
    )


RULES: Mapping[str, Rule] = {
    "foretrain.attention": _attention,
    "foretrain.attention_backward": _attention_backward,
    "foretrain.rnn": _rnn,
    "foretrain.rnn_backward": _rnn,
}
