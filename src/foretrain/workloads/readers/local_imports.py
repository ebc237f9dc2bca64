"""Python files that import the files beside them: load them, and find all the text they depend on."""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType


@contextlib.contextmanager
def loaded_module(file: Path) -> Iterator[ModuleType]:
    """The file as a module; while it is in use, its folder is where imports look first.

    Afterwards the modules that came from the folder are forgotten, so that another file's `import model`
    never finds this one's.
    """
    before = set(sys.modules)
    sys.path.insert(0, str(file.parent))
    name = f"foretrain_user_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None, file
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
        yield module
    finally:
        sys.path.remove(str(file.parent))
        for added in set(sys.modules) - before:
            if _is_beside(sys.modules[added], file.parent):
                del sys.modules[added]


def _is_beside(module: ModuleType, folder: Path) -> bool:
    origin = getattr(module, "__file__", None)
    return origin is not None and Path(origin).resolve().is_relative_to(folder.resolve())


def source_texts(file: Path) -> dict[str, str]:
    """The text of a file and of every file beside it that it imports, directly or not, by relative name."""
    texts: dict[str, str] = {}
    waiting = [file]
    while waiting:
        current = waiting.pop()
        name = current.relative_to(file.parent).as_posix()
        if name not in texts:
            texts[name] = current.read_text(encoding="utf-8", errors="replace")
            waiting += _local_files(texts[name], file.parent, current.parent)
    return texts


def _local_files(text: str, root: Path, package: Path) -> list[Path]:
    candidates = [
        base.joinpath(*dotted.split("."))
        for dotted in _imported(text)
        for base in dict.fromkeys((root, package))
    ]
    files = [option for path in candidates for option in (path.with_suffix(".py"), path / "__init__.py")]
    return [file for file in files if file.is_file()]


def _imported(text: str) -> Iterator[str]:
    """Dotted names that a text imports, with each name taken from a package as a possible module."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name
        elif isinstance(node, ast.ImportFrom):
            if node.module:
                yield node.module
            for alias in node.names:
                yield f"{node.module}.{alias.name}" if node.module else alias.name


def imported_packages(texts: Iterable[str]) -> set[str]:
    """Top-level names imported by any of the texts, but for the standard library's."""
    names = {dotted.partition(".")[0] for text in texts for dotted in _imported(text)}
    return names - sys.stdlib_module_names
