"""Network namespaces are made, capped and removed for real where that is possible."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from foretrain.errors import MissingData
from foretrain.measuring.distributed_trials.namespaces import (
    INTERFACE,
    joined_hosts,
    named,
    remove_left_behind,
    why_not,
)

NEEDED = pytest.mark.skipif(why_not() is not None, reason=f"no namespaces here: {why_not()}")


def own() -> list[str]:
    return [name for name in named() if f"-{os.getpid()}-" in name]


def output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_a_user_other_than_root_gets_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda tool: f"/sbin/{tool}")
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(MissingData, match="root"), joined_hosts(2):
        pass


def test_the_package_to_install_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda _: None)
    assert "apt-get install iproute2" in (why_not() or "")


LISTENING = """
import socket
server = socket.create_server(("", 5000))
print("up", flush=True)
print(server.accept()[1][0])
"""


@NEEDED
def test_hosts_reach_each_other_and_are_gone_afterwards(tmp_path: Path) -> None:
    with joined_hosts(2) as hosts, (tmp_path / "log").open("w") as log:
        assert len(own()) == 3
        first, second = hosts.hosts
        server = first.start([sys.executable, "-c", LISTENING], log)
        assert server.stdout is not None
        assert server.stdout.readline() == "up\n"
        calling = f"import socket; socket.create_connection(('{first.address}', 5000), 5)"
        client = second.start([sys.executable, "-c", calling], log)
        assert client.communicate(timeout=20)
        assert server.communicate(timeout=20)[0].strip() == second.address
    assert own() == []


@NEEDED
def test_caps_hold_in_both_directions_and_are_lifted() -> None:
    with joined_hosts(2, bytes_per_second=25e6) as hosts:
        sides = [(hosts.hosts[1].namespace, INTERFACE), (hosts.hub, "port1")]
        for namespace, interface in sides:
            assert "rate 200Mbit" in output("tc", "-n", namespace, "qdisc", "show", "dev", interface)
        hosts.cap(None)
        for namespace, interface in sides:
            assert "tbf" not in output("tc", "-n", namespace, "qdisc", "show", "dev", interface)


@NEEDED
def test_an_error_inside_leaves_nothing_behind() -> None:
    with pytest.raises(ZeroDivisionError), joined_hosts(1):
        raise ZeroDivisionError
    assert own() == []


SLEEPER = textwrap.dedent("""
    import signal, time
    from foretrain.measuring.distributed_trials.namespaces import joined_hosts
    signal.signal(signal.SIGINT, signal.default_int_handler)  # shells ignore it in the background
    with joined_hosts(1):
        print("up", flush=True)
        time.sleep(60)
""")


def sleeper() -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", SLEEPER], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    return process


def of(process: subprocess.Popen[str]) -> list[str]:
    return [name for name in named() if f"-{process.pid}-" in name]


@NEEDED
@pytest.mark.parametrize("request_to_end", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_process_cleans_up(request_to_end: signal.Signals) -> None:
    with sleeper() as process:
        assert len(of(process)) == 2
        process.send_signal(request_to_end)
        assert process.wait(timeout=20) != 0
        assert of(process) == []


@NEEDED
def test_what_a_killed_process_left_is_removed_by_the_next() -> None:
    with sleeper() as process:
        process.kill()
        process.wait(timeout=20)
        left = set(of(process))
        assert len(left) == 2
    assert left <= set(remove_left_behind())
    assert of(process) == []
