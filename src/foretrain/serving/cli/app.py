"""The tree of commands. Command files import the core only when they run, so that `--help` stays quick."""

from __future__ import annotations

from typing import Annotated

import typer

from foretrain import __version__
from foretrain.serving.cli import (
    calibrate,
    converge,
    devices,
    explain,
    guide,
    offers,
    plan,
    predict,
    rent_or_buy,
    scaling,
    trace,
    validate,
)

app = typer.Typer(
    name="foretrain",
    help="Know what a training job will take - time, money, memory, machines - before you run it.",
    no_args_is_help=True,
    rich_markup_mode=None,  # drawn help costs 0.1 s of imports and is no plain text in a pipe
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"foretrain {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Know what a training job will take - time, money, memory, machines - before you run it."""


app.command("predict")(predict.predict)
app.command("plan")(plan.plan)
app.command("trace")(trace.trace)
app.command("scaling")(scaling.scaling)
app.command("converge")(converge.converge)
app.command("calibrate")(calibrate.calibrate)
app.command("devices")(devices.devices)
app.command("offers")(offers.offers)
app.command("guide")(guide.guide)
app.command("rent-or-buy")(rent_or_buy.rent_or_buy)
app.command("explain")(explain.explain)
app.command("validate")(validate.validate)
