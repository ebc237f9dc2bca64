"""Elements, through which nothing hostile gets, and the page around a report."""

from __future__ import annotations

import re
from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st
from tests.support.drawings import of_class, parsed, text_of

from foretrain.serving.html.page import (
    KeyFigure,
    Markup,
    code,
    definitions,
    element,
    join,
    key_figures,
    link,
    notes,
    page,
    section,
)
from foretrain.serving.html.tables import Cell, Column, table


class Seen(HTMLParser):
    """What a browser would see."""

    def __init__(self, markup: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(markup)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text += data


def test_by_hand() -> None:
    assert element("td", "a", class_="number", data_sort="1") == '<td class="number" data-sort="1">a</td>'
    assert element("meta", charset="utf-8") == '<meta charset="utf-8">'
    assert (
        element("rect", x=1.5, y=2.0, width=1 / 3, title=None) == '<rect x="1.5" y="2" width="0.33"></rect>'
    )


def test_text_is_escaped_and_markup_is_not() -> None:
    inner = element("b", "1 < 2")
    assert element("p", inner, " & more") == "<p><b>1 &lt; 2</b> &amp; more</p>"
    assert join(("<i>", Markup("<i>"))) == "&lt;i&gt;<i>"


@given(st.text(st.characters(exclude_categories=("Cs", "Cc"))))
def test_any_text_comes_out_as_text(text: str) -> None:
    seen = Seen(element("p", text, title=text))
    assert seen.tags == ["p"]
    assert seen.text == text
    assert seen.attributes == [("title", text)]


def test_attacks_stay_text() -> None:
    for attack in ('"><script>alert(1)</script>', "' onload='x", "<img src=x onerror=y>", "</td></table>"):
        seen = Seen(element("td", attack, title=attack))
        assert seen.tags == ["td"]
        assert [name for name, _ in seen.attributes] == ["title"]


def test_a_page_is_one_file_that_asks_for_nothing() -> None:
    made = page("A <title>", "kicker", (), (section("One", "text"),), ("footer",))
    assert made.startswith('<!doctype html>\n<html lang="en">')
    assert "<title>A &lt;title&gt;</title>" in made
    assert "default-src 'none'" in made.replace("&#x27;", "'")
    for outside in ("src=", "<link", "@import", "url(", "http"):
        assert outside not in made.replace("http-equiv", "")


def test_light_dark_narrow_and_print_have_their_styles() -> None:
    made = page("t", "k", (), (), ())
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
    made = page("t", "k", (), (), ())
    assert len(re.findall("</script>", made)) == 1


def test_a_section_without_content_is_none() -> None:
    assert section("Empty", "", "") == ""


def test_notes_stand_once() -> None:
    assert notes(("a & b", "c", "a & b")) == '<ul class="notes"><li>a &amp; b</li><li>c</li></ul>'
    assert notes(()) == ""


def test_options_are_not_broken_at_their_dashes() -> None:
    markup = notes(("see --reference-batch, or <b>",))
    assert markup == (
        '<ul class="notes"><li>see <span class="keep">--reference-batch</span>, or &lt;b&gt;</li></ul>'
    )
    assert code("plan -x a-b") == '<code>plan <span class="keep">-x</span> a-b</code>'
    assert definitions(()) == ""


def test_definitions_and_figures() -> None:
    assert definitions([("name", code("<x>"))]).endswith("<dt>name</dt><dd><code>&lt;x&gt;</code></dd></dl>")
    tree = parsed(key_figures([KeyFigure("time", "3 h", "2 to 4 h"), KeyFigure("cost", "$5")]))
    assert [text_of(figure) for figure in tree.iter("dd")] == ["3 h2 to 4 h", "$5"]


def test_only_addresses_of_the_web_become_links() -> None:
    assert link("list", "https://x.org/a?b&c").startswith('<a href="https://x.org/a?b&amp;c"')
    assert link("list", "javascript:alert(1)") == "list (javascript:alert(1))"
    assert link("list", "") == "list"


def test_a_table_knows_what_to_sort_by_and_what_to_mark() -> None:
    made = table(
        [Column("machine", class_="keep"), Column("time", right=True)],
        [("a", Cell("1h 00m", 3600.0, tip="exactly")), ("b", Cell("2h 00m", 7200.0, minor="1 - 3 h"))],
        footer=("all", "3h 00m"),
        marked=frozenset({1}),
        faded=frozenset({0}),
        sortable=True,
        label="machines",
    )
    tree = parsed(made)
    assert [cell.get("data-sort") for cell in of_class(tree, "number")] == [None, "3600.0", "7200.0", None]
    assert [text_of(row) for row in of_class(tree, "marked")] == ["b2h 00m1 - 3 h"]
    assert [text_of(row) for row in of_class(tree, "faded")] == ["a1h 00m"]
    assert tree.find(".//table").get("class") == "short sortable"  # type: ignore[union-attr]
    assert tree[0].get("role") == "region"


def test_a_long_table_may_be_broken_between_rows() -> None:
    rows = [(str(number),) for number in range(40)]
    assert "short" not in table([Column("n")], rows)
    assert "short" in table([Column("n")], rows[:24])
