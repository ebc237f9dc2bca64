"""`FILE.py:callable`: a model from the user's own file, which may import the files beside it.

The callable returns a module with its inputs, `(module, inputs)`, or these and a loss,
`(module, inputs, loss)`. `inputs` is one tensor, a tuple of them by position, or a dict by name; `loss` turns
what the module returns into one number. In place of a module it may return a function that runs a whole step
of several networks and optimizers, `(step, inputs)`: see `examples`. If the callable takes `batch`,
`seq_len` or `image_size`, it is given what was asked for; otherwise another batch than that of its inputs
resizes their first dimension.

A module that exists already, with its inputs and loss, as a notebook has them.
"""

from __future__ import annotations

import ast
import contextlib
import copy
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from foretrain.errors import InvalidData, InvalidRequest, UnknownName
from foretrain.workloads.readers._base import (
    ModelSource,
    choose_batch,
    digest,
    existing_file,
    refuse_size,
    versions,
)
from foretrain.workloads.readers._torchvision import with_torchvision
from foretrain.workloads.zoo.catalogue import BuildOptions

if TYPE_CHECKING:
    from foretrain.workloads.example import Example


@contextlib.contextmanager
def load_module(file: Path) -> Iterator[ModuleType]:
    """The file as a module; while it is in use, its folder is where imports look first.

    Its arguments are those of a script that was given none: the options of foretrain are not the file's.
    Afterwards the modules that came from the folder are forgotten, so that another file's `import model`
    never finds this one's.
    """
    before, arguments = set(sys.modules), sys.argv
    sys.argv = [str(file)]
    sys.path.insert(0, str(file.parent))
    name = f"foretrain_user_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None, file
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    writes_nothing = sys.dont_write_bytecode
    sys.dont_write_bytecode = True  # a cached file changed within a second to the same size would look fresh
    try:
        spec.loader.exec_module(module)
        yield module
    finally:
        sys.argv = arguments
        sys.dont_write_bytecode = writes_nothing
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
        for dotted in _imported_names(text)
        for base in dict.fromkeys((root, package))
    ]
    files = [option for path in candidates for option in (path.with_suffix(".py"), path / "__init__.py")]
    return [file for file in files if file.is_file()]


def _imported_names(text: str) -> Iterator[str]:
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
    names = {dotted.partition(".")[0] for text in texts for dotted in _imported_names(text)}
    return names - sys.stdlib_module_names


_SIZES = ("batch", "seq_len", "image_size")
_WANTED = "return (module, inputs), (module, inputs, loss function) or (step function, inputs)"


@dataclass(frozen=True)
class PythonFile(ModelSource):
    """A callable in a Python file."""

    name: str
    file: Path
    callable_name: str
    kind: str = field(default="python file", init=False)
    runs_user_code: bool = field(default=True, init=False)
    has_data: bool = field(default=True, init=False)

    def fingerprint(self) -> str:
        """Of the file and of the files beside it that it imports; not of data files it may open."""
        texts = source_texts(self.file)
        packages = imported_packages(texts.values()) | {"torch"}
        return digest({"callable": self.callable_name, **texts, **versions(*packages)})

    def example(self, options: BuildOptions) -> Example:
        with _outside_code(self.name):
            returned, resize = with_torchvision(lambda: self._returned(options))
        return example_of(returned, options, self.name, resize)

    def _returned(self, options: BuildOptions) -> tuple[Any, bool]:
        """What the callable returns, and whether it must be given another batch afterwards."""
        with load_module(self.file) as module:
            function = _find_callable(module, self.callable_name, self.name)
            accepted = _accepted_sizes(function, options, self.name)
            returned = function(**accepted) if options.real else _call(function, accepted)
        return returned, "batch" not in accepted


def read_python_file(name: str) -> PythonFile:
    """The source behind `FILE.py:callable`; the file is looked for now, and run only for an example."""
    path, _, callable_name = name.rpartition(":")
    if not path or not callable_name:
        raise InvalidRequest(f"{name!r} names no callable; write {name.rstrip(':')}:CALLABLE")
    file = existing_file(Path(path), "model file")
    try:
        compile(file.read_bytes(), str(file), "exec")
    except (SyntaxError, ValueError) as error:
        raise InvalidData(str(file), f"is not Python: {error}") from error
    return PythonFile(name, file.resolve(), callable_name)


@contextlib.contextmanager
def _outside_code(name: str) -> Any:
    """The user's code: what it prints goes to standard error, its exceptions are reported as its own."""
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    except (InvalidRequest, UnknownName, KeyboardInterrupt, MemoryError):
        raise
    except SystemExit as error:
        raise InvalidRequest(
            f"{name} ended itself (sys.exit: {error.code}): a model file is loaded without arguments, so "
            "give its arguments defaults, or read them below `if __name__ == '__main__':`"
        ) from error
    except Exception as error:
        raise InvalidRequest(f"{name} failed: {type(error).__name__}: {error}") from error


def _find_callable(module: Any, callable_name: str, name: str) -> Callable[..., Any]:
    attribute = getattr(module, callable_name, None)
    if callable(attribute):
        return attribute  # type: ignore[no-any-return]
    if attribute is not None:
        raise InvalidRequest(f"{name}: {callable_name} is a {type(attribute).__name__}, not a callable")
    public = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
    raise UnknownName("callable", callable_name, public, f"The file defines {', '.join(public) or 'none'}.")


def _accepted_sizes(function: Callable[..., Any], options: BuildOptions, name: str) -> dict[str, int]:
    """The sizes that were asked for and that the callable takes; one it does not take is an error."""
    parameters = inspect.signature(function).parameters
    takes_any = any(item.kind is item.VAR_KEYWORD for item in parameters.values())
    asked = {size: getattr(options, size) for size in _SIZES if getattr(options, size) is not None}
    for size in asked:
        if size != "batch" and size not in parameters and not takes_any:
            raise InvalidRequest(f"{name} takes no {size}; give it a keyword argument of that name")
    return {size: value for size, value in asked.items() if size in parameters or takes_any}


def _call(function: Callable[..., Any], sizes: Mapping[str, int]) -> Any:
    """What the callable returns, built without data where its constructors allow."""
    import torch

    try:
        with torch.device("meta"):
            return function(**sizes)
    except Exception:  # noqa: BLE001 - whatever fails without data is tried with data, and then shown
        return function(**sizes)


def example_of(returned: Any, options: BuildOptions, name: str, resize: bool) -> Example:
    """The example of `(module, inputs[, loss])`; `resize` another batch than that of the inputs."""
    from foretrain.workloads.example import Example
    from foretrain.workloads.readers.examples import (
        all_by_position,
        batch_of,
        following,
        repeat_inputs,
        resize_inputs,
        step_of,
        tokens_of,
    )

    module, inputs, loss = _parts(returned, name)
    step = step_of(module, name)
    module, positional = all_by_position(step.module.train(), inputs)
    batch = batch_of(positional, name)
    samples = choose_batch(options, batch) if resize else batch
    if samples != batch:
        positional = (repeat_inputs if options.real else resize_inputs)(positional, batch, samples)
    return Example(
        module,
        positional,
        None if loss is None else following(loss, batch, samples),
        samples=samples,
        tokens=tokens_of(positional),
        notes=(*((REAL_NOTE,) if options.real else ()), *step.notes),
        optimizers=step.optimizers,
    )


REAL_NOTE = "the step was run on the CPU: its shapes are those that the example inputs lead to"


def _parts(returned: Any, name: str) -> tuple[Any, Any, Any]:
    import torch

    if isinstance(returned, torch.nn.Module):
        raise InvalidRequest(
            f"{name} returns a module without example inputs, so its data has no shape yet; {_WANTED}"
        )
    shown = type(returned).__name__
    if not isinstance(returned, tuple) or len(returned) not in (2, 3):
        raise InvalidRequest(f"{name} returns a {shown}; {_WANTED}")
    module, inputs, loss = (*returned, None)[:3]
    if not callable(module):
        raise InvalidRequest(
            f"{name} returns a {type(module).__name__} where the module should be; {_WANTED}"
        )
    if loss is not None and not isinstance(module, torch.nn.Module):
        raise InvalidRequest(f"{name} returns a step function and a loss, which a step has itself; {_WANTED}")
    if loss is not None and not callable(loss):
        raise InvalidRequest(f"{name} returns a {type(loss).__name__} where the loss should be; {_WANTED}")
    if not isinstance(inputs, torch.Tensor | tuple | list | dict):
        raise InvalidRequest(
            f"{name} returns a {type(inputs).__name__} where the inputs should be; {_WANTED}"
        )
    return module, inputs, loss


if TYPE_CHECKING:
    import torch

    from foretrain.workloads.example import Example


@dataclass(frozen=True, eq=False)
class LiveModule(ModelSource):
    """A module of this process. It is not changed: what is traced is a copy without data.

    `inputs` is one tensor, a tuple of them by position, or a dict by name; `loss` turns what the module
    returns into one number, None where that is the loss. A module has no text to recognise it by, so that
    its graphs are not kept beyond this process.
    """

    name: str
    module: torch.nn.Module
    inputs: Any
    loss: Any = None
    identity: str = field(default_factory=lambda: uuid4().hex)
    kind: str = field(default="live module", init=False)
    runs_user_code: bool = field(default=True, init=False)
    is_kept: bool = field(default=False, init=False)
    has_data: bool = field(default=True, init=False)

    def fingerprint(self) -> str:
        return self.identity

    def example(self, options: BuildOptions) -> Example:
        refuse_size(self.name, options, "seq_len", "image_size")
        module = copy.deepcopy(self.module) if options.real else _without_data(self.module)
        parts = module, self.inputs, self.loss
        return example_of(parts, options, self.name, resize=True)


def live_module(module: Any, inputs: Any, loss: Any = None) -> LiveModule:
    """The source of a module with example inputs."""
    import torch

    if not isinstance(module, torch.nn.Module):
        raise InvalidRequest(
            f"`model` is a {type(module).__name__}; it must be a name, a file or a torch.nn.Module"
        )
    if inputs is None:
        raise InvalidRequest(
            f"{type(module).__name__} needs example inputs: give `inputs`, a tensor, a tuple or a dict"
        )
    return LiveModule(type(module).__name__, module, inputs, loss)


def _without_data(module: torch.nn.Module) -> torch.nn.Module:
    """A copy whose parameters and buffers are on the meta device; shared ones stay shared."""
    import torch

    memo: dict[int, Any] = {}
    for parameter in module.parameters():
        empty = torch.empty_like(parameter, device="meta")
        memo[id(parameter)] = torch.nn.Parameter(empty, requires_grad=parameter.requires_grad)
    for buffer in module.buffers():
        memo[id(buffer)] = torch.empty_like(buffer, device="meta")
    return copy.deepcopy(module, memo)
