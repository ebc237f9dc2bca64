"""Print the release notes of a version: its section of CHANGELOG.md.

python scripts/release_notes.py 0.2.0 > notes.md
python scripts/release_notes.py            # what is not released yet
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

CHANGELOG = Path(__file__).parent.parent / "CHANGELOG.md"
UNRELEASED = "Unreleased"
_HEADING = re.compile(r"^## \[(?P<version>[^\]]+)\].*$", re.MULTILINE)


def release_notes(changelog: str, version: str) -> str:
    """The section of a version without its heading; an error names the versions there are."""
    headings = list(_HEADING.finditer(changelog))
    versions = [heading["version"] for heading in headings]
    if version not in versions:
        raise ValueError(f"no version {version!r} in the changelog; it has {', '.join(versions) or 'none'}")
    place = versions.index(version)
    end = headings[place + 1].start() if place + 1 < len(headings) else len(changelog)
    notes = changelog[headings[place].end() : end].strip()
    if not notes:
        raise ValueError(f"the section of {version} is empty")
    return notes


def main() -> int:
    """Print the notes; 1 where there are none."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("version", nargs="?", default=UNRELEASED)
    try:
        notes = release_notes(CHANGELOG.read_text(encoding="utf-8"), parser.parse_args().version)
    except ValueError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    sys.stdout.write(f"{notes}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
