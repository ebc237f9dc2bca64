"""What shells complete: names of devices, instances, links, networks, models ... after an option."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import click
from click.shell_completion import BashComplete, CompletionItem

Completer = Callable[[click.Context, click.Parameter, str], list[str]]


class BashWithColons(BashComplete):
    """Completion in bash, which takes `aws:p4d` for three words and replaces the last of them only."""

    _split_off = ""

    def get_completion_args(self) -> tuple[list[str], str]:
        """The words as they were typed, colons inside."""
        args, incomplete = super().get_completion_args()
        words: list[str] = []
        joins = False
        for word in (*args, incomplete):
            if words and (word == ":" or joins):
                words[-1] += word
            else:
                words.append(word)
            joins = word == ":"
        if len(words) < len(args) + 1 and ":" in words[-1]:
            self._split_off = words[-1].rpartition(":")[0] + ":"
        return words[:-1], words[-1]

    def format_completion(self, item: CompletionItem) -> str:
        """Without what stands before the last colon, which bash keeps."""
        return f"{item.type},{item.value.removeprefix(self._split_off)}"


def _devices() -> Iterable[str]:
    from foretrain.facts.devices import devices

    return devices()


def _providers() -> Iterable[str]:
    from foretrain.facts.providers import providers

    return providers()


def _instances() -> list[str]:
    from foretrain.facts.offers import all_offers

    current = (offer for offer in all_offers() if not offer.historical and offer.instance)
    return sorted({f"{offer.provider}:{offer.instance}" for offer in current})


def _hardware(incomplete: str) -> Iterable[str]:
    """Devices, and `aws:`; after the colon the instances of that provider."""
    if ":" in incomplete:
        return _instances()
    return [*_devices(), *(f"{provider}:" for provider in _providers())]


def _laws() -> Iterable[str]:
    from foretrain.convergence.scaling_laws import laws

    return laws()


def _links() -> Iterable[str]:
    from foretrain.facts.links import links, topologies

    inside = [name for name, link in links().items() if not link.joins_nodes]
    lanes = [name for name in inside if links()[name].kind.is_pcie]
    return [*inside, *(f"{name}@{topology}" for name in lanes for topology in topologies())]


def _networks() -> Iterable[str]:
    from foretrain.facts.links import links

    return [name for name, link in links().items() if link.joins_nodes]


def _regions() -> Iterable[str]:
    from foretrain.facts.offers import all_offers

    return sorted({offer.place for offer in all_offers() if not offer.historical and "," not in offer.place})


def _models() -> Iterable[str]:
    from foretrain.workloads.zoo import zoo

    return zoo()


def _optimizers() -> Iterable[str]:
    from foretrain.workloads.options import OPTIMIZERS

    return OPTIMIZERS


def _policies() -> Iterable[str]:
    from foretrain.scheduling.policies import policies

    return policies()


def _completer(names: Callable[[], Iterable[str]]) -> Completer:
    """Completes the last of several names with commas between them."""
    return _completer_by(lambda _: names())


def _completer_by(names: Callable[[str], Iterable[str]]) -> Completer:
    """The same with names that depend on what is already written."""

    def complete(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")
        return [f"{before}{comma}{name}" for name in names(last) if name.lower().startswith(last.lower())]

    return complete


def choices(words: tuple[str, ...]) -> Completer:
    """Completes one of a few words."""
    return _completer(lambda: words)


COMPLETERS: Mapping[str, Completer] = {
    "device": _completer(_devices),
    "hardware": _completer_by(_hardware),
    "instance": _completer(_instances),
    "law": _completer(_laws),
    "link": _completer(_links),
    "model": _completer(_models),
    "network": _completer(_networks),
    "optimizer": _completer(_optimizers),
    "policy": _completer(_policies),
    "provider": _completer(_providers),
    "region": _completer(_regions),
}
"""By the name that an option declares as `complete`."""
