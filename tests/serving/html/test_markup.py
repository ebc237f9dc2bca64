"""Elements, and that nothing hostile gets through them."""

from __future__ import annotations

from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from foretrain.serving.html.page import Markup, element, join


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
