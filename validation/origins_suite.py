"""The five documents that foretrain unites: what each publishes, beside what foretrain counts or predicts.

Published numbers are in `data/origins/`, ours in `origins_figures`. The suite writes the tables of
`docs/origins.md` between their markers; its commands are run by `scripts/render_docs.py`.
"""

from __future__ import annotations

import json
import statistics
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from foretrain.facts.user_data import write_atomically
from validation import driple_suite, learn_suite, scheduling_runs
from validation.experiments import filled
from validation.origins_data import (
    CATALOGUE,
    COUNTED,
    PREDICTED,
    Ours,
    Paper,
    PaperFigure,
    PaperItem,
    read_papers,
)
from validation.origins_figures import (
    GAPS,
    INSTANCES,
    POLICIES,
    compute,
    design_rows,
    figure_of,
    scheduling_costs,
    transfer_rows,
)
from validation.report import Case, SuiteReport, Table, Verdicts, metrics, table_lines

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "origins.md"
OURS = "foretrain"
SETS = {
    "counted from the documents' own numbers": (COUNTED, CATALOGUE),
    "predicted, measured by the documents": (PREDICTED,),
}
_NOTES = (
    "The A100 of 2021 and that of today are different prices, and are not counted.",
    "Numbers that the documents draw without printing them are not compared; findings about them are.",
)
_HOW = {"counted": "counted", "predicted": "predicted", "catalogue": "shipped fact", "measured": "our data"}
_NOT_COUNTED = frozenset({"a100-month"})


def run(data: Path) -> SuiteReport:
    """Compute every figure, and write the page. `data` is not read: all numbers are in the repository."""
    del data
    papers = read_papers()
    ours = {paper.id: compute(paper) for paper in papers}
    tables = page_tables(papers, ours)
    write_atomically(PAGE, filled(PAGE.read_text(encoding="utf-8"), tables))
    return report(papers, ours)


def report(papers: Sequence[Paper], ours: Mapping[str, Ours]) -> SuiteReport:
    """Errors of what is counted and of what is predicted, and the findings that hold."""
    by_set = {
        name: [
            Case(f"{figure.where}: {figure.what}", paper.id, figure.published,
                 {OURS: ours[paper.id].figures[figure.key]})
            for paper in papers
            for figure in paper.figures
            if figure.how in kinds and figure.key not in _NOT_COUNTED
        ]
        for name, kinds in SETS.items()
    }  # fmt: skip
    verdicts = {
        f"findings, {paper.title}": {
            OURS: Verdicts(
                sum(holds for holds, _ in ours[paper.id].findings.values()), len(ours[paper.id].findings)
            )
        }
        for paper in papers
    }
    return SuiteReport(
        "origins",
        tuple(case for cases in by_set.values() for case in cases),
        {name: {OURS: metrics(cases, OURS)} for name, cases in by_set.items()},
        verdicts,
        _NOTES,
    )


def page_tables(papers: Sequence[Paper], ours: Mapping[str, Ours]) -> dict[str, list[str]]:
    """The lines of every table of the page by its marker."""
    tables: dict[str, Table] = {"overview": _overview(papers, ours)}
    for paper in papers:
        tables[f"{paper.id} items"] = _items(paper)
        tables[f"{paper.id} figures"] = _figures(paper, ours[paper.id])
        tables[f"{paper.id} findings"] = _findings(paper, ours[paper.id])
    by_id = {paper.id: paper for paper in papers}
    tables |= {
        "sanghvi curves": _curves(by_id["sanghvi"]),
        "ardagna errors": _errors(),
        "ardagna networks": _networks(),
        "ardagna slots": _slots(by_id["ardagna"]),
        "ardagna backends": _backends(by_id["ardagna"]),
        "ardagna policies": _policies(),
        "driple designs": Table("", ("axis", "design", "NRMSE"), tuple(row[:3] for row in design_rows())),
        "driple transfer": Table(
            "",
            ("input", "Inspector", "runs of the new setting", "mean error", "training"),
            tuple((row[0], row[1], row[2], row[3], row[6]) for row in transfer_rows()),
        ),
    }
    bursts = driple_suite.run(ROOT)
    tables["driple workloads"] = bursts.tables[0]
    what_ifs = tuple(
        tuple(note.rsplit(": ", 1)) for note in bursts.notes if ": yes (" in note or ": no (" in note
    )
    tables["driple what-ifs"] = Table("", ("published", "by the timeline"), what_ifs)
    return {name: table_lines(table) for name, table in tables.items()}


# ---------------------------------------------------------------- tables of every document


def _overview(papers: Sequence[Paper], ours: Mapping[str, Ours]) -> Table:
    rows = []
    for paper in papers:
        of_paper = ours[paper.id]
        ratios = [
            of_paper.figures[figure.key] / figure.published
            for figure in paper.figures
            if figure.how == PREDICTED
        ]
        predicted = f"{len(ratios)}, median ratio {statistics.median(ratios):.2f}" if ratios else "none"
        counted = sum(figure.how in (COUNTED, CATALOGUE) for figure in paper.figures)
        holds = sum(each for each, _ in of_paper.findings.values())
        absent = sum(bool(item.absent) for item in paper.items)
        rows.append(
            (f"[{paper.title}](#{anchor(paper)})", paper.authors, str(counted), predicted,
             f"{holds} of {len(of_paper.findings)}", f"{len(paper.items)}, {absent} not here")
        )  # fmt: skip
    headings = (
        "document",
        "authors",
        "numbers counted",
        "numbers predicted",
        "findings that hold",
        "parts listed",
    )
    return Table("", headings, tuple(rows))


def anchor(paper: Paper) -> str:
    """The heading of a document on the page, as a link."""
    return {
        "sanghvi": "prediction-cost-analysis",
        "cloud_slides": "multi-gpu-training-in-the-cloud",
        "ardagna": "performance-prediction-and-scheduling",
        "driple": "driple",
        "pani": "a-buyers-guide",
    }[paper.id]


def _items(paper: Paper) -> Table:
    return Table("", ("in the document", "what", "here", "page", "test"), tuple(map(_item, paper.items)))


def _item(item: PaperItem) -> tuple[str, ...]:
    here = f"`{item.command}`" if item.command else f"not here: {item.absent}"
    file, _, name = item.test.partition("::")
    test = f"`{Path(file).stem}::{name}`" if name else f"`{Path(file).stem}`"
    return item.where, item.says, here, f"[{Path(item.page.partition('#')[0]).stem}]({item.page})", test


def _figures(paper: Paper, ours: Ours) -> Table:
    rows = tuple(_figure(figure, ours.figures[figure.key]) for figure in paper.figures)
    return Table("", ("in the document", "what", "published", "here", "ratio", "how"), rows)


def _figure(figure: PaperFigure, value: float) -> tuple[str, ...]:
    unit = f" {figure.unit}" if figure.unit else ""
    return (
        figure.where,
        figure.what,
        f"{_number(figure.published)}{unit}",
        f"{_number(value)}{unit}",
        f"{value / figure.published:.2f}",
        _HOW[figure.how],
    )


def _number(value: float) -> str:
    """Five digits, all of whole numbers."""
    return f"{value:,.0f}" if value == int(value) else f"{value:,.5g}"


def _findings(paper: Paper, ours: Ours) -> Table:
    rows = []
    for finding in paper.findings:
        holds, values = ours.findings[finding.key]
        rows.append((finding.where, finding.says, "yes" if holds else "**no**", values))
    return Table("", ("in the document", "finding", "holds here", "what foretrain finds"), tuple(rows))


# ---------------------------------------------------------------- tables of single documents


def _curves(paper: Paper) -> Table:
    """Time to 80 % accuracy on CIFAR-10 from half of a run, on public curves."""
    cases = "K80 and P100, 50% seen, leave entry out"
    methods = ("foretrain", "foretrain, no history", "Optimus", "nearest run", "median of the others")
    printed = statistics.fmean(paper.printed(f"{name}-error") / 100 for name in ("p100", "2xk80"))
    rows = [("Sanghvi, its two runs", "2", f"{printed:.0%}", f"{printed:.0%}")]
    for method in methods:
        mean, median, count = (
            figure_of("seed_job", cases, method, each) for each in ("mean", "median", "count")
        )
        rows.append((f"{method}, ResNet-164 of DAWNBench", f"{count:.0f}", f"{mean:.0%}", f"{median:.0%}"))
    return Table("", ("method", "runs", "mean error", "median"), tuple(rows))


_QUESTIONS = {
    "Batch Size Extr.": ("batch-size", "batch-size, cells"),
    "GPUs number Extr.": ("gpu-count", "gpu-count, cells"),
    "Comput. Power Extr.": ("compute-power", "compute-power, both, cells"),
    "Extr. Inner Modules number": ("inner-modules", "inner-modules, cells"),
}


def _errors() -> Table:
    """The tables of errors by their medians."""
    cells = learn_suite.published_cells()
    rows = []
    for name, (question, cases) in _QUESTIONS.items():
        ours, linear = (
            figure_of("learn", cases, method) for method in (learn_suite.GRAY, learn_suite.LINEAR)
        )
        published = statistics.median(cells[question])
        rows.append((name, str(len(cells[question])), f"{published:.1%}", f"{linear:.1%}", f"{ours:.1%}",
                     f"{ours / published:.2f}"))  # fmt: skip
    own, other = cells["per-layer"]
    for name, published, method in (
        ("Per-layer, its own layers", own, "its own layers"),
        ("Per-layer, layers of others", other, "layers of all other networks"),
    ):
        ours = figure_of("learn", "per-layer, measured profiles, cells", method)
        rows.append((name, "1", f"{published:.1%}", f"{ours:.1%}", "", f"{ours / published:.2f}"))
    headings = ("table", "cells", "published", "the same regression here", "gray box", "ratio")
    return Table("", headings, tuple(rows))


_NETWORKS = {"AlexNet": "AlexNet", "ResNet-50": "ResNet50", "VGG-19": "VGG19"}


def _networks() -> Table:
    """Larger batches by network: cells of K80 and M60 in the slides, of K80, M60, T4 and V100 here."""
    raw = tomllib.loads(learn_suite.PUBLISHED_FILE.read_text(encoding="utf-8"))["batch-size"]
    rows = []
    for name, here in _NETWORKS.items():
        for framework in ("PyTorch", "TensorFlow"):
            cells = raw[f"{name} {framework}"]
            median = statistics.median(cells) / 100
            rows.append((f"{name}, {framework}", str(len(cells)), f"{median:.1%}", "", ""))
        linear, gray = (figure_of("learn", f"batch-size, {here}", method)
                        for method in (learn_suite.LINEAR, learn_suite.GRAY))  # fmt: skip
        count = figure_of("learn", f"batch-size, {here}", learn_suite.GRAY, "count")
        rows.append((f"{name}, Keras (PROFET)", f"{count:.0f}", "", f"{linear:.1%}", f"{gray:.1%}"))
    return Table("", ("network", "cells", "published", "the same regression here", "gray box"), tuple(rows))


def _slots(paper: Paper) -> Table:
    rows = [
        (str(number), f"{predicted:.2f}", f"{real:.2f}", f"{predicted / real:.2f}")
        for number, (predicted, real) in enumerate(paper.slots, 1)
    ]
    predicted, real = (sum(column) for column in zip(*paper.slots, strict=True))
    rows.append(("sum", f"{predicted:.2f}", f"{real:.2f}", f"{predicted / real:.2f}"))
    return Table("", ("slot", "predicted (USD)", "real (USD)", "ratio"), tuple(rows))


def _backends(paper: Paper) -> Table:
    """Forecast against bill: the prototype on Azure, and twelve trainings on each backend."""
    printed = (f"{paper.printed(f'slots-{name}'):.2f}" for name in ("predicted", "real", "difference"))
    forecast, bill, difference = printed
    rows = [("Azure, prototype of the slides", str(len(paper.slots)), forecast, bill, f"{difference}%")]
    for name in scheduling_runs.BACKENDS:
        result = json.loads((scheduling_runs.DATA / f"{name}.json").read_text(encoding="utf-8"))
        rows.append((f"foretrain, {name}", str(len(result["slots"])), f"{result['forecast_usd']:.2f}",
                     f"{result['billed_usd']:.2f}", f"{abs(result['difference']):.2%}"))  # fmt: skip
    return Table("", ("backend", "slots", "forecast (USD)", "bill (USD)", "difference"), tuple(rows))


def _policies() -> Table:
    """Mean cost of the instances of each gap, and its ratio to `auto`."""
    costs = scheduling_costs()
    means = {
        (gap, name): statistics.fmean(costs[gap, instance][name] for instance in range(INSTANCES))
        for gap in GAPS
        for name in POLICIES
    }
    rows = tuple(
        (
            name,
            *_cells(
                (f"{means[gap, name]:,.2f}", f"{means[gap, name] / means[gap, 'auto']:.1f}") for gap in GAPS
            ),
        )
        for name in POLICIES
    )
    headings = ("policy", *_cells((f"{gap} s (USD)", "over auto") for gap in GAPS))
    return Table("", headings, rows)


def _cells(pairs: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    return tuple(cell for pair in pairs for cell in pair)
