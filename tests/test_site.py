"""The documentation site: it builds strictly, its home answers, its navigation is by what a reader wants."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import yaml
from validation.targets import expectations

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
SITE: dict[str, Any] = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))


def pictures() -> ModuleType:
    """scripts/terminal_pictures.py."""
    spec = importlib.util.spec_from_file_location("pictures", ROOT / "scripts" / "terminal_pictures.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    """Strict: a link or an anchor that leads nowhere, or a page that is in no navigation, fails."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert built.returncode == 0, built.stdout + built.stderr
    assert (tmp_path / "accuracy" / "transfer.html").is_file()  # behind its overview, yet a page


def test_navigation_is_by_tutorial_how_to_reference_and_explanation() -> None:
    sections = [next(iter(each)) for each in SITE["nav"]]
    assert sections == ["Home", "Tutorial", "How-to guides", "Reference", "Explanation"]


def test_the_home_shows_answers_and_a_picture_not_a_table_of_links() -> None:
    home = (DOCS / "index.md").read_text("utf-8")
    sessions = re.findall(r"```console\n\$ foretrain (\w+).*?\n(.+?)```", home, re.DOTALL)
    assert [command for command, output in sessions if output.strip()] == ["predict", "plan", "converge"]
    assert not re.search(r"^\|", home, re.MULTILINE)
    assert re.findall(r"!\[.+\]\((.+)\)", home) == ["images/plan.svg"]


def test_the_picture_of_the_home_is_of_the_answer_above_it() -> None:
    home = (DOCS / "index.md").read_text("utf-8")
    assert f"$ {pictures().CHARTS['plan']} " in home
    machines = re.search(r"✓ resnet50: rent (\S+) ", home)
    assert machines is not None
    assert f"· {machines[1]}<" in (DOCS / "images" / "plan.svg").read_text("utf-8")


def test_pictures_of_commands_are_on_a_page() -> None:
    texts = [page.read_text("utf-8") for page in (ROOT / "README.md", *DOCS.glob("*.md"))]
    names = {**pictures().PICTURES, **pictures().CHARTS}
    assert [name for name in names if not any(f"images/{name}.svg" in text for text in texts)] == []


def test_errors_stated_on_home_and_readme_are_those_of_the_accuracy_page() -> None:
    one, many = (f"{row.figures.median:.0%}".replace("%", " %") for row in expectations()[:2])
    for page in (DOCS / "index.md", ROOT / "README.md"):
        text = " ".join(page.read_text("utf-8").split())
        assert f"within {one} on one GPU and {many} on many" in text


def test_the_readme_opens_with_questions_two_commands_and_a_picture() -> None:
    opening = (ROOT / "README.md").read_text("utf-8").split("\n## ")[0]
    assert "?" in opening.split("```")[0]
    assert "```sh\nmake demo\nmake test\n```" in opening
    assert "](docs/images/plan.svg)" in opening
    assert pictures().CHARTS["plan"] in opening


def test_the_tutorial_asks_before_each_command() -> None:
    """The paragraphs between one output and the next command hold a question."""
    text = (DOCS / "getting-started.md").read_text("utf-8").split("## 2.")[1].split("## 7.")[0]
    before = re.split(r"```console\n.*?```", text, flags=re.DOTALL)[:-1]
    assert len(before) >= 6
    assert [part.strip()[-80:] for part in before if "?" not in part] == []


def test_links_of_the_readme_lead_somewhere() -> None:
    """mkdocs checks those of the site."""
    for page in ("README.md", "CONTRIBUTING.md", "ARCHITECTURE.md", "SECURITY.md"):
        for target in re.findall(r"\]\((?!https?:)([^)#]+)(?:#[^)]*)?\)", (ROOT / page).read_text("utf-8")):
            assert (ROOT / target).exists(), f"{page}: {target}"
