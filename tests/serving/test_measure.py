"""`foretrain measure` as its users run it: real commands, real signals, a real store."""

import fcntl
import json
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from foretrain.measuring.distributed_trials.namespaces import why_not
from foretrain.store import RunQuery, open_store
from foretrain.store.runs import Run, Status

STEPS = "import foretrain, time\nfor _ in range({steps}):\n    time.sleep(0.02)\n    foretrain.step()\n"


def heed_interrupts() -> None:
    """A shell starts background jobs, such as these tests, with SIGINT ignored, and children inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Measuring:
    """Runs `foretrain measure` with a home of its own."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.environment = {**os.environ, "FORETRAIN_HOME": str(home)}
        self.environment.pop("FORETRAIN_STORE", None)

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "foretrain", "measure", *arguments]

    def run(self, *arguments: str) -> "subprocess.CompletedProcess[bytes]":
        return subprocess.run(
            self.command(*arguments), env=self.environment, capture_output=True, check=False, timeout=300
        )

    def start(self, *arguments: str, **options: Any) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            self.command(*arguments),
            env=self.environment,
            preexec_fn=heed_interrupts,  # noqa: PLW1509 - no threads here
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            **options,
        )

    def python(self, code: str, *options: str) -> "subprocess.CompletedProcess[bytes]":
        return self.run(*options, "--", sys.executable, "-c", code)

    def stored(self) -> list[Run]:
        with open_store(f"sqlite:///{self.home / 'runs.sqlite'}") as store:
            return store.runs(RunQuery(), with_series=True)

    def journals(self) -> list[Path]:
        return list((self.home / "measuring").glob("*"))


@pytest.fixture
def measuring(own_home: Path) -> Measuring:
    return Measuring(own_home)


def test_output_and_exit_code_are_those_of_the_command(measuring: Measuring) -> None:
    code = (
        "import sys; sys.stdout.buffer.write(bytes(range(256)) * 500); sys.stderr.write('oops'); sys.exit(7)"
    )
    run = measuring.python(code)
    assert run.returncode == 7
    assert run.stdout == bytes(range(256)) * 500
    assert run.stderr.startswith(b"oops")
    (stored,) = measuring.stored()
    assert (stored.status, stored.exit_code) == (Status.FAILED, 7)
    assert measuring.journals() == []


def test_steps_and_resources_are_reported_and_stored(measuring: Measuring) -> None:
    run = measuring.python(STEPS.format(steps=40), "--json", "--steps", "40")
    assert run.returncode == 0, run.stderr
    answer = json.loads(run.stdout)
    assert answer["step"]["source"] == "foretrain.step()"
    assert answer["step"]["seconds"] >= 0.02
    assert answer["step"]["steps"] + answer["step"]["warm_up_steps"] == 39
    assert {"cpu", "memory"} <= {each["resource"] for each in answer["resources"]}
    (stored,) = measuring.stored()
    assert stored.id == answer["id"]
    assert stored.setting == {"steps": 40}
    assert len(stored.steps[0].seconds) == 39
    assert stored.series


def test_a_report_is_printed_after_the_output_and_drawn(measuring: Measuring, tmp_path: Path) -> None:
    plot = tmp_path / "run.svg"
    run = measuring.python(f"{STEPS.format(steps=30)}print('done')", "--no-store", "--plot", str(plot))
    report = run.stderr.decode()
    assert (run.returncode, run.stdout) == (0, b"done\n")
    assert "29 steps" not in report and "from foretrain.step()" in report
    assert "completed after" in report and "burst duration" in report
    assert plot.read_text(encoding="utf-8").startswith("<svg")
    assert not (measuring.home / "runs.sqlite").exists()
    assert measuring.journals() == []


def test_a_prediction_is_made_first_and_shown_beside(measuring: Measuring) -> None:
    options = ("--model", "mnist-cnn", "--on", "t4", "--batch", "64", "--json")
    answer = json.loads(measuring.python(STEPS.format(steps=20), *options).stdout)
    made = answer["prediction"]
    assert made["p10_seconds"] < made["p50_seconds"] < made["p90_seconds"]
    assert made["measured_over_predicted"] == pytest.approx(answer["step"]["seconds"] / made["p50_seconds"])
    (stored,) = measuring.stored()
    assert stored.prediction is not None
    assert stored.prediction.made_at < stored.started_at


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (("--", "no-such-command"), 127, "there is no command 'no-such-command'"),
        (("--", "/etc/passwd"), 126, "may not be executed"),
        (("--model", "mnist-cnnn", "--on", "t4", "--batch", "1", "--", "true"), 2, "mnist-cnn"),
        (("--plot", "run.gif", "--", "true"), 2, ".png"),
        (("--store", "/proc/none/runs.sqlite", "--", "true"), 4, "/proc/none"),
        (("--join", "somewhere", "--", "true"), 2, "--node"),
        (("--interval", "0", "--", "true"), 2, "--interval"),
        ((), 2, "COMMAND"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_runs(
    measuring: Measuring, options: tuple[str, ...], code: int, message: str
) -> None:
    run = measuring.run(*options)
    assert run.returncode == code, run.stderr
    assert message in run.stderr.decode()
    assert "Traceback" not in run.stderr.decode()
    assert measuring.journals() == []


def test_a_command_that_dies_at_once_leaves_a_run(measuring: Measuring) -> None:
    run = measuring.run("--", "sh", "-c", "echo broken; kill -9 $$")
    assert run.returncode == 128 + 9
    (stored,) = measuring.stored()
    assert (stored.status, stored.exit_code, stored.message) == (Status.FAILED, 137, "broken")
    assert "No steps" in run.stderr.decode()


def test_running_out_of_memory_is_a_status(measuring: Measuring) -> None:
    measuring.python("raise MemoryError('DefaultCPUAllocator: can\\'t allocate memory')")
    (stored,) = measuring.stored()
    assert stored.status is Status.OUT_OF_MEMORY


def until_steps(process: "subprocess.Popen[bytes]") -> None:
    """Wait until the command has printed a line."""
    assert process.stdout is not None
    assert process.stdout.readline() == b"training\n"


TRAINING = f"print('training', flush=True)\n{STEPS.format(steps=100_000)}"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_keeps_what_was_gathered(measuring: Measuring, number: signal.Signals) -> None:
    process = measuring.start("--", sys.executable, "-c", TRAINING)
    until_steps(process)
    time.sleep(1.5)
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == (130 if number is signal.SIGINT else 143), errors
    (stored,) = measuring.stored()
    assert stored.status is Status.INTERRUPTED
    assert stored.summary is not None and stored.summary.steps > 10


def test_a_command_may_handle_signals_itself(measuring: Measuring) -> None:
    code = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGUSR1, lambda *_: sys.exit(42))\n"
        "print('training', flush=True)\n"
        "while True: time.sleep(0.1)"
    )
    process = measuring.start("--", sys.executable, "-c", code)
    until_steps(process)
    process.send_signal(signal.SIGUSR1)
    process.communicate(timeout=60)
    assert process.returncode == 42


def test_a_killed_foretrain_loses_a_second_and_the_next_one_stores_the_run(measuring: Measuring) -> None:
    process = measuring.start("--", sys.executable, "-c", TRAINING)
    until_steps(process)
    time.sleep(3)
    (journal,) = measuring.journals()
    process.kill()
    process.communicate()
    run = measuring.run("--", "true")
    assert run.returncode == 0
    assert journal.stem in run.stderr.decode()
    by_id = {stored.id: stored for stored in measuring.stored()}
    recovered = by_id[journal.stem]
    assert (recovered.status, recovered.provenance) == (Status.INTERRUPTED, "measure, recovered")
    assert recovered.summary is not None and recovered.summary.steps > 20
    assert measuring.journals() == []
    assert not list(Path("/dev/shm").glob(f"foretrain-{journal.stem}"))


def test_a_closed_pipe_ends_the_command_as_it_would_without_foretrain(measuring: Measuring) -> None:
    line = f"{' '.join(measuring.command('--', 'yes'))} | head -n 1"
    shell = ["bash", "-c", f"set -o pipefail; {line}"]
    run = subprocess.run(shell, env=measuring.environment, capture_output=True, check=False, timeout=60)
    assert run.stdout == b"y\n"
    assert run.returncode in (1, 128 + signal.SIGPIPE)


def on_terminal(measuring: Measuring, *arguments: str) -> tuple[int, str]:
    """Run with a terminal for output and errors; the exit code and all that was shown."""
    outer, inner = pty.openpty()
    fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
    process = subprocess.Popen(
        measuring.command(*arguments), env=measuring.environment, stdin=inner, stdout=inner, stderr=inner
    )
    os.close(inner)
    shown = b"".join(_until_closed(outer))
    return process.wait(timeout=60), shown.decode(errors="replace")


def _until_closed(descriptor: int) -> Iterator[bytes]:
    while True:
        try:
            data = os.read(descriptor, 65536)
        except OSError:
            data = b""
        if not data:
            os.close(descriptor)
            return
        yield data


def test_on_a_terminal_bars_render_and_are_read(measuring: Measuring) -> None:
    code = (
        "import sys, time, tqdm\n"
        "assert sys.stdout.isatty() and sys.stderr.isatty()\n"
        "for _ in tqdm.tqdm(range(40)): time.sleep(0.02)"
    )
    returncode, shown = on_terminal(measuring, "--", sys.executable, "-c", code)
    assert returncode == 0
    assert "40/40" in shown and "\r" in shown
    (stored,) = measuring.stored()
    assert stored.summary is not None
    assert stored.summary.source == "tqdm progress bar"
    assert stored.summary.steps + stored.summary.warm_up_steps == 40


def test_on_a_terminal_a_quiet_command_has_a_line_with_the_time_left(measuring: Measuring) -> None:
    code = STEPS.format(steps=120)
    returncode, shown = on_terminal(measuring, "--steps", "120", "--", sys.executable, "-c", code)
    assert returncode == 0
    assert "/120 steps" in shown and " left" in shown


FULL_DISK = """
set -e
mount -t tmpfs -o size=600k tmpfs {home}
{python} -m foretrain measure --json -- {python} -c "$CODE"
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
def test_a_full_disk_loses_neither_the_run_nor_the_exit_code(measuring: Measuring) -> None:
    fill = f"open({str(measuring.home / 'big')!r}, 'wb').write(bytes(10_000_000))"
    code = (
        f"{STEPS.format(steps=60)}\ntry:\n    {fill}\nexcept OSError: pass\n{STEPS.format(steps=60)}exit(5)"
    )
    run = subprocess.run(
        ["unshare", "-m", "sh", "-c", FULL_DISK.format(home=measuring.home, python=sys.executable)],
        env={**measuring.environment, "CODE": code}, capture_output=True, check=False, timeout=120,
    )  # fmt: skip
    assert run.returncode == 5, run.stderr
    answer = json.loads(run.stdout)
    assert answer["step"]["steps"] > 50
    errors = run.stderr.decode()
    assert answer["store"] is None and "not stored" in errors
    rescued = Path(errors.rpartition(" is in ")[2].strip())
    assert "Traceback" not in errors
    rescued.unlink(missing_ok=True)


EXAMPLES = Path(__file__).parents[2] / "examples"


def example(measuring: Measuring, *command: str) -> dict[str, Any]:
    run = measuring.run("--json", "--no-store", "--", *command)
    assert run.returncode == 0, run.stderr.decode()
    answer: dict[str, Any] = json.loads(run.stdout)
    return answer


@pytest.mark.parametrize(
    ("words", "source", "steps"),
    [
        (("train_mnist_cnn.py", "--steps", "20", "--batch", "16"), "foretrain.step()", 19),
        (("train_hf_trainer.py", "--steps", "20"), "tqdm progress bar", 20),
        (("train_keras.py",), "Keras progress bar", 128),
    ],
)
def test_examples_are_measured_as_they_are(
    measuring: Measuring, words: tuple[str, ...], source: str, steps: int
) -> None:
    answer = example(measuring, sys.executable, str(EXAMPLES / words[0]), *words[1:])
    assert answer["step"]["source"] == source
    assert answer["step"]["steps"] + answer["step"]["warm_up_steps"] == steps
    assert (answer["step"]["input_share"] is not None) == (source == "foretrain.step()")


def torchrun(*options: str, batch: int = 16) -> tuple[str, ...]:
    training = (str(EXAMPLES / "train_mnist_cnn.py"), "--steps", "25", "--batch", str(batch))
    return (sys.executable, "-m", "torch.distributed.run", *options, *training)


def test_workers_of_torchrun_are_merged(measuring: Measuring) -> None:
    answer = example(measuring, *torchrun("--standalone", "--nproc-per-node", "2"))
    assert [(each["worker"], each["summary"]["source"]) for each in answer["workers"]] == [
        (0, "foretrain.step()"),
        (1, "foretrain.step()"),
    ]
    assert answer["environment"]["devices_per_node"] == 2
    assert {each["worker"] for each in answer["resources"] if each["resource"] == "cpu"} == {-1, 0, 1}
    assert {"network_transmit", "network_receive"} <= {each["resource"] for each in answer["bursts"]}


@pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
def test_two_nodes_show_the_bursts_of_all_reduce_under_a_cap(measuring: Measuring, tmp_path: Path) -> None:
    from foretrain.measuring.distributed_trials.namespaces import joined_hosts

    cap = 200e6 / 8
    with joined_hosts(2, cap) as network:
        nodes = []
        for index, host in enumerate(network.hosts):
            command = torchrun(
                "--nnodes", "2", "--node-rank", str(index), "--nproc-per-node", "1",
                "--master-addr", network.hosts[0].address, "--master-port", "29531",
                batch=192,  # computing takes long enough to show as a gap between exchanges
            )  # fmt: skip
            line = measuring.command(
                "--json", "--join", str(tmp_path / "job"), "--", *command, "--hidden", "1024"
            )
            nodes.append(
                subprocess.Popen(
                    ["ip", "netns", "exec", host.namespace, *line],
                    env={**measuring.environment, "GLOO_SOCKET_IFNAME": "eth0"},
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                )
            )
        first, second = (node.communicate(timeout=300)[0] for node in nodes)
    assert [node.returncode for node in nodes] == [0, 0]
    answer = json.loads(first)
    assert [(each["worker"], each["node"]) for each in answer["workers"]] == [(0, 0), (1, 1)]
    assert answer["environment"]["nodes"] == 2
    sent = [each for each in answer["bursts"] if each["resource"] == "network_transmit"]
    assert [(each["node"], each["label"], each["pattern"]) for each in sent] == [
        (0, "eth0", "BIB"),
        (1, "eth0", "BIB"),
    ]
    assert all(0.4 * cap < each["burst_amount"] < 1.3 * cap for each in sent)
    assert len(json.loads(second)["workers"]) == 1
    (stored,) = measuring.stored()
    assert {steps.node for steps in stored.steps} == {0, 1}


def test_time_money_and_the_target_that_are_ahead(measuring: Measuring, tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    log.write_text("step,loss\n" + "".join(f"{step},{1 + 10 / step}\n" for step in range(1, 40)))
    options = ("--steps", "100", "--usd-per-hour", "3600", "--target", "loss=5", "--log", str(log))
    done = measuring.python("print('step 4/100 0.5 s/step')", "--json", "--no-store", *options)
    ahead = json.loads(done.stdout)["outlook"]
    assert (ahead["steps"], ahead["total_steps"], ahead["seconds_left"]) == (4, 100, 48.0)
    assert ahead["usd_left"] == pytest.approx(48.0)
    assert ahead["probability"] > 0.9
    refused = measuring.python("pass", "--no-store", "--target", "loss=5")
    assert b"--target and --log belong together" in refused.stderr
