"""A page as a document: text stays text, one file that asks for nothing, tables that sort and mark."""

from __future__ import annotations

import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.support.drawings import of_class, parsed, text_of

from foretrain.serving.rendering.html import document
from foretrain.serving.views.blocks import (
    Block,
    Cell,
    Column,
    Figure,
    Figures,
    Heading,
    Notes,
    Page,
    Sentence,
    Table,
)


def main_of(*blocks: Block) -> Any:
    """What stands under the heading of a section."""
    made = document(Page.of("Title", [Heading("Section", level=2), *blocks]))
    return parsed(made[made.index("<main>") : made.index("</main>") + len("</main>")])


@given(st.text(st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="\u00a0"), min_size=1))
def test_any_text_comes_out_as_text(text: str) -> None:
    tree = main_of(Sentence(text), Table([Column("a")], [(Cell("x", tip=text),)]))
    (paragraph,) = tree.iter("p")
    assert text_of(paragraph) == text
    (cell,) = tree.iter("td")
    assert " ".join(cell.get("title", "").split()) == " ".join(text.split())


def test_attacks_stay_text() -> None:
    for attack in ('"><script>alert(1)</script>', "' onload='x", "<img src=x onerror=y>", "</td></table>"):
        tree = main_of(Table([Column("a")], [(Cell(attack, tip=attack),)]))
        (cell,) = tree.iter("td")
        assert text_of(cell) == attack
        assert set(cell.keys()) == {"data-head", "title"}


def test_a_page_is_one_file_that_asks_for_nothing() -> None:
    made = document(Page.of("A <title>", [Heading("One", level=2), Sentence("text")]), "kicker")
    assert made.lstrip().startswith('<!doctype html>\n<html lang="en">')
    assert "<title>A &lt;title&gt;</title>" in made
    assert "default-src 'none'" in made.replace("&#39;", "'")
    for outside in ("src=", "<link", "@import", "url(", "http"):
        assert outside not in made.replace("http-equiv", "")


def test_light_dark_narrow_and_print_have_their_styles() -> None:
    made = document(Page.of("t", []))
    for rule in (
        "@media screen and (prefers-color-scheme: dark)",
        "@media screen and (max-width",
        "@media print",
    ):
        assert rule in made
    printed = made.split("@media print")[1]
    for rule in ("@page", "break-inside: avoid", "break-after: avoid", "table-header-group"):
        assert rule in printed


def test_the_script_cannot_end_early() -> None:
    assert len(re.findall("</script>", document(Page.of("t", [])))) == 1


def test_a_section_without_content_is_none() -> None:
    page = Page.of("t", [Heading("Empty", level=2), Heading("Full", level=2), Sentence("x")])
    assert re.findall("<h2>(.*?)</h2>", document(page)) == ["Full"]


def test_notes_stand_once() -> None:
    tree = main_of(Notes(("a & b", "c", "a & b")))
    assert [text_of(entry) for entry in tree.iter("li")] == ["a & b", "c"]


def test_options_are_not_broken_at_their_dashes() -> None:
    tree = main_of(Notes(("see --reference-batch, or <b> a-b",)))
    assert [text_of(kept) for kept in of_class(tree, "keep")] == ["--reference-batch"]
    assert [text_of(entry) for entry in tree.iter("li")] == ["see --reference-batch, or <b> a-b"]


def test_definitions_and_key_figures() -> None:
    tree = main_of(Figures([Figure("time", "3 h", "2 to 4 h"), Figure("cost", "$5")], is_key=True))
    assert [text_of(figure) for figure in tree.iter("dd")] == ["3 h2 to 4 h", "$5"]
    assert of_class(tree, "figures")
    plain = main_of(Figures([Figure("name", "<x>")]))
    (listed,) = of_class(plain, "definitions")
    assert [child.tag for child in listed] == ["dt", "dd"]


def test_only_addresses_of_the_web_become_links() -> None:
    addresses = ("https://x.org/a?b&c", "javascript:alert(1)", "")
    tree = main_of(Table([Column("a")], [(Cell("list", link=address),) for address in addresses]))
    assert [link.get("href") for link in tree.iter("a")] == ["https://x.org/a?b&c"]
    assert [text_of(cell) for cell in tree.iter("td")] == ["list"] * 3


def test_a_table_knows_what_to_sort_by_and_what_to_mark() -> None:
    tree = main_of(
        Table(
            [Column("machine", role="keep"), Column("time", right=True)],
            [("a", Cell("1h 00m", 3600.0, tip="exactly")), ("b", Cell("2h 00m", 7200.0, minor="1 - 3 h"))],
            "machines",
            footer=("all", "3h 00m"),
            marked=frozenset({1}),
            faded=frozenset({0}),
            is_sortable=True,
        )
    )
    assert [cell.get("data-sort") for cell in of_class(tree, "number")] == [None, "3600.0", "7200.0", None]
    assert [text_of(row) for row in of_class(tree, "marked")] == ["b2h 00m1 - 3 h"]
    assert [text_of(row) for row in of_class(tree, "faded")] == ["a1h 00m"]
    assert tree.find(".//table").get("class") == "short sortable"
    (region,) = [each for each in tree.iter("div") if each.get("role") == "region"]
    assert region.get("aria-label") == "machines"


def test_a_long_table_may_be_broken_between_rows() -> None:
    def classes(rows: int) -> str:
        table = Table([Column("n")], [(str(number),) for number in range(rows)])
        return str(main_of(table).find(".//table").get("class") or "")

    assert "short" not in classes(40)
    assert "short" in classes(24)


def test_code_in_a_sentence_is_set_as_code_and_stays_text() -> None:
    page = Page.of("t", [Sentence("run `foretrain offers --refresh <now>` or give --network")])
    text = document(page, "k", "c", "")
    assert "run <code>foretrain offers --refresh &lt;now&gt;</code> or give" in text
    assert '<span class="keep">--network</span>' in text
