"""The word list of the lint: what is rejected, where, and how the baseline works."""

from __future__ import annotations

from pathlib import Path

import pytest
from scripts import check_words
from scripts.check_words import Hit, Word, baseline_text, check_text, excess, read_baseline, read_words

TOLD = Word("told", "predicted")
FOUND = Word("found", "the quantity", names_only=True)
SO_MANY = Word("so many", "the count")


def lines(text: str, *words: Word, path: str = "src/a.py") -> list[tuple[int, str]]:
    """The line and the word of each hit."""
    return [(hit.line, hit.text) for hit in check_text(text, path, words)]


@pytest.mark.parametrize(
    "text", ["told", "x = steps_told", "class StepTold: ...", "# Told.", "_TOLD = 1", '"told"']
)
def test_a_word_is_rejected_in_names_comments_and_texts(text: str) -> None:
    assert lines(f"\n{text}\n", TOLD) == [(2, "told")]


@pytest.mark.parametrize("text", ["toldo", "untold", "Toldo", "retold_it"])
def test_parts_of_other_words_are_accepted(text: str) -> None:
    assert lines(text, TOLD) == []


@pytest.mark.parametrize(
    "text", ["so many", "so_many", "SoMany", "so\n    many", "# so\n# many", "so\n> many"]
)
def test_a_phrase_may_be_an_identifier_or_wrap(text: str) -> None:
    (hit,) = check_text(text, "src/a.py", [SO_MANY])
    assert hit.line == 1


def test_names_are_checked_in_code_only() -> None:
    text = '"""It found\nnothing."""\nfound = 1  # found\nx = "found"\ny = f(found)\n'
    assert lines(text, FOUND) == [(3, "found"), (5, "found")]


def test_names_are_not_checked_outside_python() -> None:
    assert lines("`found` it", FOUND, path="docs/a.md") == []


def test_an_entry_applies_to_some_paths() -> None:
    word = Word("told", "predicted", only=("src/**",), allow=("src/b/**",))
    assert [word.applies_to(path) for path in ("src/a.py", "src/b/c.py", "docs/a.md")] == [True, False, False]


def test_a_hit_names_file_line_word_and_advice() -> None:
    (hit,) = check_text("\nIt is told.\n", "docs/a.md", [TOLD])
    assert str(hit) == "docs/a.md:2: told -> use predicted"


def test_a_file_may_keep_what_the_baseline_allows_but_no_more() -> None:
    hits = [Hit("a.py", 1, "told", ""), Hit("a.py", 2, "told", ""), Hit("b.py", 1, "told", "")]
    assert excess(hits, {"a.py": 2, "b.py": 1}) == []
    assert excess(hits, {"a.py": 1, "b.py": 1}) == hits[:2]
    assert excess(hits, {}) == hits


def test_the_baseline_follows_renamed_files_but_its_sum_never_rises(tmp_path: Path) -> None:
    (tmp_path / "scripts").mkdir()
    readme, architecture = tmp_path / "README.md", tmp_path / "ARCHITECTURE.md"
    baseline = tmp_path / "scripts" / "words_baseline.txt"

    readme.write_text("told told\n", "utf-8")
    assert check_words.main(["--update-baseline"], root=tmp_path) == 0
    assert read_baseline(baseline) == {"README.md": 2}
    assert check_words.main([], root=tmp_path) == 0

    readme.rename(architecture)
    assert check_words.main([], root=tmp_path) == 1
    assert check_words.main(["--update-baseline"], root=tmp_path) == 0
    assert read_baseline(baseline) == {"ARCHITECTURE.md": 2}

    architecture.write_text("told told told\n", "utf-8")
    assert check_words.main(["--update-baseline"], root=tmp_path) == 1
    assert read_baseline(baseline) == {"ARCHITECTURE.md": 2}


def test_the_baseline_is_read_as_it_is_written(tmp_path: Path) -> None:
    file = tmp_path / "baseline.txt"
    assert read_baseline(file) == {}
    file.write_text(baseline_text({"src/b.py": 2, "src/a.py": 1, "src/c.py": 0}), "utf-8")
    assert read_baseline(file) == {"src/a.py": 1, "src/b.py": 2}


def test_every_entry_of_the_list_has_advice_and_matches_lower_case() -> None:
    words = read_words().words
    assert len(words) > 20
    for word in words:
        assert word.use
        assert word.regex.pattern
        assert word.pattern == word.pattern.lower() or "\\" in word.pattern


@pytest.mark.parametrize(
    "text",
    [
        "what tells the time",
        "it is not said which a100 they have",
        "nodes that differ",
        "so many steps of which batch?",
        "if not as usual: 0 for not",
        "fewer are faster",
        "ways = 1",
        "settling = 1",
        "spreading",
        "tenancy",
        "found = 1",
        "of no use",
        "to the brim",
        "spoils no plan",
        "as good as a coin",
        "be its nodes alike or not",
    ],
)
def test_the_table_of_the_style_guide_is_rejected(text: str) -> None:
    assert check_text(text, "src/foretrain/prediction/a.py", read_words().words)


@pytest.mark.parametrize(
    "text",
    [
        "the best of both ways",
        "it was found",
        "settings",
        "spread of residuals",
        "as many as",
        "so that many are",
    ],
)
def test_plain_english_is_accepted(text: str) -> None:
    assert not check_text(f"# {text}", "src/foretrain/prediction/a.py", read_words().words)


def test_the_repository_passes(capsys: pytest.CaptureFixture[str]) -> None:
    assert check_words.main([]) == 0, capsys.readouterr().out


def test_named_paths_report_all_hits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "src" / "part"
    folder.mkdir(parents=True)
    (folder / "a.py").write_text("told = 1\n", "utf-8")
    (tmp_path / "README.md").write_text("told\n", "utf-8")
    assert check_words.main([str(folder)], root=tmp_path) == 1
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith("src/part/a.py:1: told -> use ")
    assert printed[1].startswith("1 words in 1 files")
