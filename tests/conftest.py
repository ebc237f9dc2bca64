"""What all tests share: a home of their own, and ways to run the command line."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, settings

from foretrain.facts.devices import devices, user_devices_dir
from foretrain.measuring import stopwatch, this_machine
from foretrain.serving.cli import main

Evaluation = subprocess.CompletedProcess[str]
LONG_TESTS = Path(__file__).parent / "long.yaml"

# No test depends on how busy the machine is: examples may take as long as they take.
settings.register_profile(
    "foretrain", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("foretrain")
os.environ["FORETRAIN_PROGRESS"] = "3600"  # what is on standard error, too


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests that `long.yaml` lists."""
    reasons = yaml.safe_load(LONG_TESTS.read_text("utf-8"))
    for item in items:
        listed = reasons.get(item.path.relative_to(config.rootpath).as_posix(), {})
        name = item.nodeid.partition("::")[2]
        for test in (name, name.partition("[")[0]):
            if test in listed:
                item.add_marker(pytest.mark.long(listed[test]))
                break


@pytest.fixture(scope="session")
def traced_graphs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Graphs that tests of this run traced, found by content: a model is traced once, not in every one."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "graphs"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, traced_graphs: Path) -> Iterator[Path]:
    """No test reads or writes what the user of this machine imported or measured.

    Only traced graphs are shared: commands started as processes of their own find them too.
    """
    home = tmp_path.with_name(f"{tmp_path.name}-home")  # beside it: some tests list their folder
    home.mkdir()
    (home / "graphs").symlink_to(traced_graphs)
    monkeypatch.setenv("FORETRAIN_HOME", str(home))
    yield home
    if user_devices_dir().exists():  # devices are read once; forget those of this home
        devices.cache_clear()
    shutil.rmtree(home, ignore_errors=True)  # a later test may get a folder of the same name


@pytest.fixture
def run_here(capfd: pytest.CaptureFixture[str]) -> Callable[..., Evaluation]:
    """Run the command line in this process: quick, for the many cases."""

    def run(*arguments: str) -> Evaluation:
        capfd.readouterr()
        with pytest.raises(SystemExit) as leaving:
            main(arguments)
        printed = capfd.readouterr()
        code = leaving.value.code
        assert isinstance(code, int)
        return Evaluation(arguments, code, printed.out, printed.err)

    return run


@pytest.fixture
def run_command() -> Callable[..., Evaluation]:
    """Run the real command in a process of its own; its output is a pipe, as in a script."""

    def run(*arguments: str, **environment: str) -> Evaluation:
        return subprocess.run(
            [sys.executable, "-m", "foretrain", *arguments],
            capture_output=True,
            text=True,
            env={**os.environ, **environment},
            timeout=60,
            check=False,
        )

    return run


@pytest.fixture
def quick_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure this machine with matrices and copies so small that it takes no time."""
    monkeypatch.setattr(this_machine, "_MATRIX_SIDE", 64)
    monkeypatch.setattr(this_machine, "_COPY_ELEMENTS", 2**16)
    monkeypatch.setattr(stopwatch, "OtherLoad", QuietLoad)


class QuietLoad:
    """Other processes that use no core; tests run beside others."""

    cores = 0.0

    def __init__(self, processes: object) -> None:
        del processes
