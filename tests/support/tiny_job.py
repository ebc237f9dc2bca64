"""A job of steps that take a fixed time: `tiny_job.py CHECKPOINT PROGRESS TRACE STEPS STEP_SECONDS [EVERY]`.

It resumes from its checkpoint, saves one every EVERY steps and when it is asked to stop, and appends a line
with its attempt and the step to TRACE, so that a test sees which attempt did what.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path


def _write(path: Path, content: object) -> None:
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_text(json.dumps(content))
    partial.replace(path)


def main() -> None:
    checkpoint, progress, trace = (Path(each) for each in sys.argv[1:4])
    steps, step_seconds = int(sys.argv[4]), float(sys.argv[5])
    every = int(sys.argv[6]) if len(sys.argv) > 6 else 5
    asked: list[int] = []
    signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
    done = since = json.loads(checkpoint.read_text()) if checkpoint.exists() else 0
    saved, start = done, time.monotonic()
    while done < steps and not asked:
        time.sleep(step_seconds)
        done += 1
        with trace.open("a") as lines:
            lines.write(f"{os.environ['FORETRAIN_ATTEMPT']} {done}\n")
        if done % every == 0 or done == steps or asked:
            _write(checkpoint, done)
            saved = done
        seconds = time.monotonic() - start
        _write(progress, {"done": done, "total": steps, "saved": saved, "seconds": seconds, "since": since})
    if asked and saved < done:
        _write(checkpoint, done)
        _write(progress, {"done": done, "total": steps, "saved": done})


if __name__ == "__main__":
    main()
