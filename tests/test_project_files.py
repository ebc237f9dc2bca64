"""Files that people and sites look for in a repository, and release notes out of the changelog."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from scripts.release_notes import release_notes

import foretrain as ft

ROOT = Path(__file__).parent.parent
CHANGELOG = """# Changelog

## [Unreleased]

### Added

- New.

## [0.2.0] - 2026-01-02

- Second.

## [0.1.0] - 2026-01-01
"""


def test_the_notes_of_a_version_are_its_section() -> None:
    assert release_notes(CHANGELOG, "Unreleased") == "### Added\n\n- New."
    assert release_notes(CHANGELOG, "0.2.0") == "- Second."


def test_a_version_without_notes_is_refused() -> None:
    with pytest.raises(ValueError, match=r"it has Unreleased, 0\.2\.0, 0\.1\.0"):
        release_notes(CHANGELOG, "0.3.0")
    with pytest.raises(ValueError, match=r"section of 0\.1\.0 is empty"):
        release_notes(CHANGELOG, "0.1.0")


def test_the_changelog_has_notes_to_release() -> None:
    assert release_notes((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), "Unreleased").startswith("### ")


def test_the_citation_has_what_its_format_requires() -> None:
    """Citation File Format 1.2.0: cff-version, message, title and authors; an entity has a name."""
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["cff-version"] == "1.2.0"
    assert citation["type"] in ("software", "dataset")
    assert citation["message"]
    assert citation["title"] == "foretrain"
    assert all(author["name"] for author in citation["authors"])
    assert citation["version"] == ft.__version__
    assert citation["license"] == "Apache-2.0"
    known = {"abstract", "authors", "cff-version", "keywords", "license", "message", "title", "type", "url"}
    assert set(citation) == known | {"version"}


def test_the_workflow_calls_make_test() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "test.yml").read_text(encoding="utf-8"))
    steps = workflow["jobs"]["test"]["steps"]
    assert [step["run"].split()[-2:] for step in steps if "run" in step] == [["make", "test"]]
    assert {step["uses"].split("@")[0] for step in steps if "uses" in step} == {
        "actions/checkout",
        "actions/setup-python",
    }
    assert workflow[True], "`on` is read as a truth value by YAML 1.1"


def test_security_says_how_to_report() -> None:
    assert "## Reporting a vulnerability" in (ROOT / "SECURITY.md").read_text(encoding="utf-8")
