"""Charts as pictures: Vega-Lite specifications drawn by vl-convert, without a browser or a network.

A file is drawn in the light theme. In a page the colours become variables of its style sheet, marks get
their sentence as a tooltip, and the chart is drawn twice, wide and narrow, so that texts keep their size on a
phone.
The same specification always gives the same bytes, so that pictures can be kept in git.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from html import escape
from pathlib import Path
from typing import Any
from zlib import crc32

from foretrain.errors import InvalidRequest, MissingData
from foretrain.facts.user_data import check_file, write_output
from foretrain.serving.views import vega
from foretrain.serving.views.blocks import Chart

FORMATS = (".png", ".svg", ".pdf")
FILE_WIDTH = 640
"""Pixels between the axes of a chart in a file."""
PAGE_WIDTHS = {"wide": 800, "narrow": 290}
"""Pixels between the axes of a chart in a page, for a screen and for a phone."""
_VEGA_LITE = "5.20"
_SHARPNESS = 2
"""Pixels of a PNG for one of the chart."""
VARIABLES = {
    **{colour: f"--c{number}" for number, colour in enumerate(vega.PALETTE, start=1)},
    vega.PAPER: "--paper", vega.INK: "--ink", vega.MUTED: "--muted", vega.LINE: "--line",
    vega.STRONG_LINE: "--strong-line", vega.ACCENT: "--accent", vega.WARNING: "--warn",
}  # fmt: skip
"""Colours of the light theme and the variables that hold them, and those of the dark theme, in `page.css`."""


def save_chart(chart: Chart, path: Path) -> None:
    """Draw a chart into a file; the end of its name says as what."""
    if chart.spec is None:
        raise InvalidRequest(f"there is nothing to draw of {chart.title!r}")
    save_spec(chart.spec(FILE_WIDTH), path)


def save_spec(spec: Mapping[str, Any], path: Path) -> None:
    """Draw a specification into a file."""
    check_format(path)
    svg = _svg(spec)
    match path.suffix.lower():
        case ".svg":
            drawn: str | bytes = f"{svg}\n"
        case ".png":
            drawn = _converter().svg_to_png(svg, scale=_SHARPNESS)
        case _:
            drawn = _converter().svg_to_pdf(svg)
    write_output("--plot", path, drawn)


def check_format(path: Path) -> None:
    """Refuse a file whose name does not end in a known format, or that cannot be where it should."""
    if path.suffix.lower() not in FORMATS:
        raise InvalidRequest(
            f"cannot draw into {path.name or str(path)!r}: end the name in {', '.join(FORMATS)}"
        )
    check_file("--plot", path)


def page_svgs(chart: Chart) -> str:
    """A chart as SVG elements of a page, one for each width; nothing for a chart without a specification."""
    if chart.spec is None:
        return ""
    return "\n".join(
        _for_page(_svg(_without_title(chart.spec(width))), chart, name) for name, width in PAGE_WIDTHS.items()
    )


def _without_title(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    """The page has the title above the chart, and its own background."""
    bare = {name: value for name, value in spec.items() if name != "title"}
    return {**bare, "background": None}


def _for_page(svg: str, chart: Chart, name: str) -> str:
    opening = re.match(r'<svg[^>]* viewBox="([^"]*)"[^>]*>', svg)
    assert opening is not None, "vl-convert draws SVG with a view box"
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="chart {name}" viewBox="{opening[1]}" '
        f'role="graphics-document document" aria-roledescription="chart">'
        f"<title>{escape(chart.title)}</title><desc>{escape(chart.description)}</desc>"
    )
    body = svg[opening.end() :]
    body = re.sub(r'(fill|stroke)="(#[0-9a-f]{6})"', _as_variable, body)
    return head + re.sub(r'<(\w+) aria-label="([^"]*)" role="graphics-symbol"([^>]*)/>', _with_title, body)


def _as_variable(match: re.Match[str]) -> str:
    attribute, colour = match.groups()
    variable = VARIABLES.get(colour)
    return match[0] if variable is None else f'{attribute}="var({variable}, {colour})"'


def _with_title(match: re.Match[str]) -> str:
    tag, label, rest = match.groups()
    return f'<{tag} aria-label="{label}" role="graphics-symbol"{rest}><title>{label}</title></{tag}>'


def _svg(spec: Mapping[str, Any]) -> str:
    """The drawing without what differs from one to the next or shows nothing."""
    text = json.dumps(spec)
    # No base URL is allowed: a specification holds its data, and nothing is ever fetched.
    svg: str = _converter().vegalite_to_svg(text, vl_version=_VEGA_LITE, allowed_base_urls=[])
    svg = re.sub(r'<path class="(?:fore|back)ground"[^>]* d="(?:M0,0h0v0h0Z)?"[^>]*/>', "", svg)
    svg = re.sub(r' (?:d|transform|[xy][12]?|width|height)="[^"]*"', _rounded, svg)
    # Vega counts the ids of clips and gradients over the life of a process; charts of one page must differ.
    prefix = f"c{crc32(text.encode()):08x}"
    ids = dict.fromkeys(re.findall(r' id="((?:clip|gradient_?)\d+)"', svg))
    for number, name in enumerate(ids, start=1):
        svg = re.sub(rf'(id="|url\(#){name}(?=["\)])', rf"\g<1>{prefix}-{number}", svg)
    return svg


def _rounded(match: re.Match[str]) -> str:
    return re.sub(r"-?\d+\.\d{2,}", lambda number: f"{round(float(number[0]), 2):g}", match[0])


@cache
def _converter() -> Any:
    try:
        import vl_convert
    except ImportError as error:
        raise MissingData("drawing charts needs vl-convert: pip install 'foretrain[report]'") from error
    return vl_convert
