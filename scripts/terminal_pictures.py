"""Draw the pictures of commands in the documentation: terminals, and charts of `--plot`.

    python scripts/terminal_pictures.py            docs/images/terminal-*.svg and the charts below
    python scripts/terminal_pictures.py plan       those whose name contains this text

Each command runs in a real pseudo-terminal with an empty data directory, so colours, drawn tables and wrapped
lines are those a person sees.
"""

from __future__ import annotations

import fcntl
import io
import os
import pty
import struct
import subprocess
import sys
import tempfile
import termios
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"
COLUMNS, ROWS = 108, 60
PICTURES = {
    "terminal-predict": "foretrain predict gpt2-medium --on rtx4090 --batch 4",
    "terminal-plan": "foretrain plan resnet50 --samples 1281167 --epochs 90 --deadline 12h --gpu a100,l4,t4",
}
CHARTS = {
    "plan": "foretrain plan resnet50 --samples 1281167 --epochs 90 --precision fp16 --deadline 24h",
    "rent-or-buy": (
        "foretrain rent-or-buy --price 270000 --offer lambda:gpu_8x_h100_sxm5 --device h100-sxm:8 "
        "--usd-per-kwh 0.15 --pue 1.56 --utilisation 0.5"
    ),
    "schedule": (
        "foretrain simulate docs/examples/jobs.csv --cluster docs/examples/cluster.yaml "
        "--times docs/examples/times.csv"
    ),
}
"""Commands whose `--plot` is a picture of the documentation."""


def on_terminal(command: str, home: str) -> str:
    """What a command writes to a terminal, with its control sequences."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    environment = {**os.environ, "FORETRAIN_HOME": home, "TERM": "xterm-256color", "COLUMNS": str(COLUMNS)}
    words = [sys.executable, "-m", "foretrain", *command.split()[1:]]
    with subprocess.Popen(words, stdout=theirs, stderr=subprocess.DEVNULL, env=environment) as process:
        os.close(theirs)
        written = b""
        while True:
            try:
                chunk = os.read(ours, 1 << 16)
            except OSError:  # the terminal's other end is closed
                break
            if not chunk:
                break
            written += chunk
        if process.wait():
            raise SystemExit(f"{command} failed with {process.returncode}")
    os.close(ours)
    return written.decode().replace("\r\n", "\n")


def drawn(command: str, output: str) -> str:
    """The command and its output as an SVG picture that loads nothing from elsewhere."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO())
    console.print(Text(f"$ {command}", style="bold"))
    console.print(Text.from_ansi(output))
    faces = CONSOLE_SVG_FORMAT.split("@font-face")
    local = faces[0] + faces[-1].split("}}", 1)[1] if len(faces) > 1 else CONSOLE_SVG_FORMAT
    return console.export_svg(title="foretrain", code_format=local.replace("Fira Code", "DejaVu Sans Mono"))


def main() -> None:
    """Draw all pictures, or those whose name contains a given text."""
    wanted = sys.argv[1:] or [""]
    os.environ["SOURCE_DATE_EPOCH"] = "0"  # no lines about the age of prices
    with tempfile.TemporaryDirectory() as home:
        for name, command in (PICTURES | CHARTS).items():
            if not any(text in name for text in wanted):
                continue
            picture = IMAGES / f"{name}.svg"
            if name in CHARTS:
                on_terminal(f"{command} --plot {picture}", home)
            else:
                picture.write_text(drawn(command, on_terminal(command, home)), encoding="utf-8")
            sys.stdout.write(f"docs/images/{name}.svg\n")


if __name__ == "__main__":
    main()
