"""Draw what commands look like on a terminal, for the documentation.

    python scripts/terminal_pictures.py            docs/images/terminal-*.svg

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
    """Draw all pictures."""
    with tempfile.TemporaryDirectory() as home:
        for name, command in PICTURES.items():
            (IMAGES / f"{name}.svg").write_text(drawn(command, on_terminal(command, home)), encoding="utf-8")
            sys.stdout.write(f"docs/images/{name}.svg\n")


if __name__ == "__main__":
    main()
