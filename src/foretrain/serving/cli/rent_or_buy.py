"""`foretrain rent-or-buy`: after how many hours of use does owning a machine win?"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from foretrain.decoding import FILE, option
from foretrain.panels import OUTPUT
from foretrain.serving.cli.frame import Command, Output
from foretrain.serving.requests.plan import RentOrBuyRequest


@dataclass(frozen=True, kw_only=True)
class RentOrBuyOutput(Output):
    """What `rent-or-buy` prints and draws."""

    plot: Path | None = option(FILE, "Draw the costs into this .png or .svg file.", panel=OUTPUT)


def run(request: RentOrBuyRequest, output: RentOrBuyOutput) -> None:
    """Compare, draw if asked for, and print."""
    from foretrain.serving.cli.terminal import print_answer
    from foretrain.serving.verbs import predicting

    answer = predicting.rent_or_buy(request)
    if output.plot is not None:
        from foretrain.serving.rendering.charts import save_chart
        from foretrain.serving.views.charts import cost_chart

        save_chart(cost_chart(answer), output.plot)
    print_answer(answer, output.json, () if output.plot is None else (f"Plot: {output.plot}",))


COMMAND = Command(
    RentOrBuyRequest,
    RentOrBuyOutput,
    run,
    examples=(
        "foretrain rent-or-buy --price 8000 --rent 1.50 --relative-performance 0.7",
        "foretrain rent-or-buy --price 250k$ --offer aws:p4d.24xlarge --plot costs.png",
    ),
)
