"""One thing per TOML file: the form the files on devices, links and nodes share.

A file is named after the `id` it states, says who the thing is in a few texts, lists its aliases, and gives
what is known of it in `[[facts]]` blocks (see `foretrain.facts.sheets`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources.abc import Traversable

from foretrain.errors import InvalidData
from foretrain.facts.sheets import Sheet, read_sheet, read_toml


@dataclass(frozen=True)
class Entry:
    """What one file says: identifying texts by key, aliases, facts."""

    identity: dict[str, str]
    aliases: tuple[str, ...]
    sheet: Sheet


def read_entries(folder: Traversable, identity: tuple[str, ...]) -> Iterator[Entry]:
    """The TOML files of a folder, in order of name; each must state the `identity` texts."""
    files = (file for file in folder.iterdir() if file.name.endswith(".toml"))
    for file in sorted(files, key=lambda file: file.name):
        content = read_toml(file)
        missing = [key for key in identity if not isinstance(content.get(key), str)]
        if missing:
            raise InvalidData(file.name, f"a file in {folder.name} must say {', '.join(missing)}")
        if content["id"] + ".toml" != file.name:
            raise InvalidData(file.name, f"the file is not named after its id, {content['id']!r}")
        yield Entry(
            identity={key: content[key] for key in identity},
            aliases=tuple(content.get("aliases", ())),
            sheet=read_sheet(content["id"], content.get("facts", []), file.name),
        )
