"""Callbacks for training libraries: predicted against measured step time, time left and bill, while training.

    from foretrain.callbacks import HuggingFaceCallback
    trainer = Trainer(..., callbacks=[HuggingFaceCallback(prediction=ft.predict(...), usd_per_hour=3.2)])

    HuggingFaceCallback     for `transformers.Trainer`
    LightningCallback       for `lightning.Trainer`
    KerasCallback           for `keras.Model.fit`

All take the same keywords. `prediction` is an answer of `foretrain.predict`, a step time in seconds, or the
keywords of `foretrain.predict` as a dict. `usd_per_hour` is the price of all machines; `offer` names a
machine (`"aws:p4d.24xlarge"`) whose price is used instead. A line is shown every `every_seconds` seconds and
at the end, with `show` (default: standard output). Each step also calls `foretrain.step()`, so that
`foretrain measure` knows the steps exactly. A library is imported when its callback is first used.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from foretrain.answers import Infeasible
from foretrain.errors import InvalidRequest
from foretrain.measuring.watching.outlook import TrainingMonitor, TrainingState

__all__ = ("HuggingFaceCallback", "KerasCallback", "LightningCallback")  # noqa: F822 - see `__getattr__`

EVERY_SECONDS = 10.0


def __getattr__(name: str) -> Any:
    """Build the class of a library when it is first asked for: its base class must be imported."""
    if name not in _BUILDERS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    built = _BUILDERS[name]()
    built.__qualname__, built.__module__ = name, __name__
    globals()[name] = built
    return built


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _Monitored:
    """What all callbacks share: their keywords, and the monitor behind them."""

    def __init__(
        self,
        *,
        prediction: Any = None,
        usd_per_hour: float | None = None,
        offer: str | None = None,
        every_seconds: float = EVERY_SECONDS,
        show: Callable[[str], object] | None = None,
    ) -> None:
        super().__init__()
        self.monitor = TrainingMonitor(
            predicted_seconds=predicted_seconds(prediction),
            usd_per_hour=hourly_price(usd_per_hour, offer),
            every_seconds=every_seconds,
            show=show or _print,
        )

    @property
    def state_of_training(self) -> TrainingState:
        """How far training is: steps, measured and predicted time, time left, bill."""
        return self.monitor.state


def predicted_seconds(prediction: Any) -> float | None:
    """The predicted step time in an answer, a number, or the keywords of `foretrain.predict`."""
    if prediction is None:
        return None
    if isinstance(prediction, Mapping):
        from foretrain import predict

        prediction = predict(**prediction)
    if isinstance(prediction, Infeasible):
        raise InvalidRequest(f"there is no step to compare with: {prediction}")
    if isinstance(prediction, int | float) and not isinstance(prediction, bool):
        if not (math.isfinite(prediction) and prediction > 0):
            raise InvalidRequest(f"`prediction` is {prediction}; a step time must be above 0 seconds")
        return float(prediction)
    try:
        return float(prediction.step.seconds.p50)
    except AttributeError as error:
        raise InvalidRequest(
            f"`prediction` is of type {type(prediction).__name__}; it must be an answer of "
            "foretrain.predict, a number of seconds, or a dict of keywords"
        ) from error


def hourly_price(usd_per_hour: float | None, offer: str | None) -> float | None:
    """The price as given, or that of an offer."""
    if usd_per_hour is not None and offer is not None:
        raise InvalidRequest("`usd_per_hour` and `offer` are two prices: give one")
    if offer is not None:
        from foretrain.facts.offers import offer_named

        return offer_named(offer).usd_per_hour
    if usd_per_hour is not None and not (math.isfinite(usd_per_hour) and usd_per_hour >= 0):
        raise InvalidRequest(f"`usd_per_hour` must be finite and at least 0, got {usd_per_hour}")
    return usd_per_hour


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def _hugging_face() -> type:
    base: Any = import_module("transformers").TrainerCallback

    class HuggingFaceCallback(_Monitored, base):  # type: ignore[misc]
        """For `transformers.Trainer(callbacks=[...])`. Only the first process reports."""

        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
            self.monitor.start(state.max_steps, is_quiet=not state.is_world_process_zero)

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
            self.monitor.step()

        def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
            self.monitor.finish()

    return HuggingFaceCallback


def _lightning() -> type:
    from foretrain.workloads.readers._torchvision import repair_torchvision

    repair_torchvision()  # Lightning's metrics import it
    try:
        base: Any = import_module("lightning.pytorch").Callback
    except ModuleNotFoundError:
        base = import_module("pytorch_lightning").Callback

    class LightningCallback(_Monitored, base):  # type: ignore[misc]
        """For `lightning.Trainer(callbacks=[...])`. A step is a batch. Only the first process reports."""

        def on_train_start(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002
            self.monitor.start(_batches(trainer), is_quiet=not trainer.is_global_zero)

        def on_train_batch_end(self, *_: Any, **__: Any) -> None:
            self.monitor.step()

        def on_train_end(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002
            self.monitor.finish()

    return LightningCallback


def _batches(trainer: Any) -> int | None:
    """All batches of a Lightning training, None where it has no end."""
    optimizer_steps = trainer.estimated_stepping_batches
    if not math.isfinite(optimizer_steps):
        return None
    return int(optimizer_steps) * int(trainer.accumulate_grad_batches)


def _keras() -> type:
    base: Any = import_module("keras").callbacks.Callback

    class KerasCallback(_Monitored, base):  # type: ignore[misc]
        """For `model.fit(callbacks=[...])`. A step is a batch."""

        def on_train_begin(self, logs: Any = None) -> None:  # noqa: ARG002
            epochs, steps = self.params.get("epochs"), self.params.get("steps")
            self.monitor.start(epochs * steps if epochs and steps else None)

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
            self.monitor.step()

        def on_train_end(self, logs: Any = None) -> None:  # noqa: ARG002
            self.monitor.finish()

    return KerasCallback


_BUILDERS: Mapping[str, Callable[[], type]] = {
    "HuggingFaceCallback": _hugging_face,
    "LightningCallback": _lightning,
    "KerasCallback": _keras,
}
