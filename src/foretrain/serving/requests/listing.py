"""The requests of devices, offers, links, models and explain: what is known."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from foretrain.decoding import (
    FILE,
    SWITCH,
    TEXT,
    option,
)
from foretrain.facts.options import OfferQuery
from foretrain.panels import (
    HERE,
    MACHINES,
    PRICES,
)
from foretrain.serving.requests import Request


@dataclass(frozen=True, kw_only=True)
class DevicesRequest(Request):
    """What hardware is known."""

    EXAMPLES = (
        "foretrain devices",
        "foretrain devices h100-sxm",
        "foretrain devices a100 --json",
    )

    name: str | None = option(
        TEXT,
        "Device (id or alias) or family (default: all).",
        positional=True,
        metavar="NAME",
        complete="device",
    )
    vendor: str | None = option(
        TEXT, "Only this vendor: nvidia, amd, intel ...", metavar="NAME", panel=MACHINES
    )
    generation: str | None = option(
        TEXT, "Only this generation, e.g. ampere.", metavar="NAME", panel=MACHINES
    )
    measure_here: bool = option(
        SWITCH, "Measure this machine's CPU and add it as the device `here`.", default=False, panel=HERE
    )


@dataclass(frozen=True, kw_only=True)
class AddDeviceRequest(Request):
    """A device of your own."""

    DETAILS = (
        "The file has the form of the shipped ones (see docs/facts.md) and must pass the same checks. A "
        "device of that id which you added before is replaced."
    )
    EXAMPLES = ("foretrain devices add lab-x1.toml",)

    file: Path = option(FILE, "Device file (TOML).", required=True, positional=True)


@dataclass(frozen=True, kw_only=True)
class ForgetDeviceRequest(Request):
    """A device you added."""

    EXAMPLES = ("foretrain devices forget lab-x1",)

    name: str = option(TEXT, "Device.", required=True, positional=True, metavar="NAME", complete="device")


@dataclass(frozen=True, kw_only=True)
class OffersRequest(Request, OfferQuery):
    """What machines cost to rent."""

    EXAMPLES = (
        "foretrain offers --gpu h100 --count 8 --sort price --cloud aws,gcp --spot",
        "foretrain offers --refresh prices_2026_09.csv",
        "foretrain offers --refresh gpuhunt",
    )

    refresh: Path | None = option(
        FILE,
        "Import newer prices: a CSV file in SkyPilot's layout, or `gpuhunt` to ask that package if it is "
        "installed.",
        panel=PRICES,
    )
    as_of: str | None = option(
        TEXT, "Date of those prices, if the name of the file has none.", metavar="YYYY-MM-DD", panel=PRICES
    )


@dataclass(frozen=True, kw_only=True)
class AddOffersRequest(Request):
    """Prices of your own."""

    DETAILS = (
        "Required columns: provider, instance, device, count, usd_per_hour; optional: region, vcpus, "
        "memory_gib, spot_usd_per_hour, as_of (default: today). A provider may be a new one. An offer "
        "replaces a known one of the same provider, instance and region, and every plan considers it."
    )
    EXAMPLES = ("foretrain offers add lab.csv",)

    file: Path = option(FILE, "File of offers (CSV).", required=True, positional=True)


@dataclass(frozen=True, kw_only=True)
class ForgetOffersRequest(Request):
    """Prices you added."""

    EXAMPLES = ("foretrain offers forget lab", "foretrain offers forget lab:x1-8")

    name: str = option(
        TEXT, "Provider, or PROVIDER:INSTANCE.", required=True, positional=True, metavar="NAME"
    )


@dataclass(frozen=True, kw_only=True)
class LinksRequest(Request):
    """Which links and networks are known."""

    EXAMPLES = (
        "foretrain links",
        "foretrain links --kind nvlink",
        "foretrain links --topology topology.txt --device a100-sxm-80gb",
        "foretrain links --json",
    )

    kind: str | None = option(
        TEXT, "Only this technology: pcie, nvlink, nvswitch, infiniband, ethernet ...", metavar="NAME"
    )
    topology: Path | None = option(
        FILE,
        "Explain the output of `nvidia-smi topo -m` in this file: which links connect which GPUs.",
        metavar="FILE",
    )
    device: str | None = option(
        TEXT,
        "GPU model in `topology`; adds the links used by predictions.",
        metavar="DEVICE",
        complete="device",
    )


@dataclass(frozen=True, kw_only=True)
class ModelsRequest(Request):
    """Which models can be trained."""

    EXAMPLES = (
        "foretrain models",
        "foretrain models --search llama",
        "foretrain models --search detection --json",
    )

    search: str | None = option(
        TEXT, "Only models whose name, family or task contains this text.", metavar="TEXT"
    )


@dataclass(frozen=True, kw_only=True)
class ExplainRequest(Request):
    """Every fact about a name."""

    EXAMPLES = (
        "foretrain explain h100-sxm",
        "foretrain explain aws:p4d.24xlarge",
        "foretrain explain nvlink4",
    )

    name: str = option(
        TEXT,
        "Device, family, link, node, provider, data set, storage, source or offer.",
        required=True,
        positional=True,
        metavar="NAME",
    )
