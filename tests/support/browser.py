"""A real browser without a window and without a network, spoken to over its DevTools pipe.

Messages are JSON texts that end in a zero byte; the browser reads file descriptor 3 and writes 4.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions",
    "--disable-default-apps", "--mute-audio", "--hide-scrollbars", "--remote-debugging-pipe",
    "--host-resolver-rules=MAP * ~NOTFOUND",
)  # fmt: skip
_PATIENCE_SECONDS = 30.0
_INSTALL = "sh scripts/install_test_tools.sh"
_IS_INSTALLED = """
((family) => {
  const text = document.body.appendChild(document.createElement("span"));
  text.textContent = "Wide or narrow? 0123456789";
  const width = (names) => {
    text.style.setProperty("font-family", names, "important");
    return text.offsetWidth;
  };
  const differs = ["monospace", "serif"].some((other) => width(`"${family}", ${other}`) !== width(other));
  text.remove();
  return differs;
})
"""


class NoBrowser(AssertionError):
    """No browser to test with: a failure, not a reason to skip."""


@dataclass(frozen=True, slots=True)
class Font:
    """A font family the reader of a page may have, and what is added to each character's width, in em."""

    name: str
    family: str
    spacing_em: float = 0.0


NARROW = Font("narrow", "Yanone Kaffeesatz")
COMMON = Font("common", "Liberation Sans")
WIDE = Font("wide", "DejaVu Sans")
WIDEST = Font("widest", "DejaVu Sans", 0.04)
FONTS = (NARROW, COMMON, WIDE, WIDEST)


def browser_path() -> str:
    """Where the browser is."""
    found = next((path for path in map(shutil.which, _NAMES) if path), None)
    if found is None:
        raise NoBrowser(f"no chromium is installed, and reports are tested in one: {_INSTALL}")
    return found


class Tab:
    """An open page. Everything that was logged, failed or requested is kept."""

    def __init__(self, write: int, read: int) -> None:
        self._write, self._read = write, read
        self._buffer = b""
        self._last = 0
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """What the browser answers; events that come first are kept."""
        self._last += 1
        message: dict[str, Any] = {"id": self._last, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._last:
                assert "error" not in answer, f"{method}: {answer['error']}"
                result: dict[str, Any] = answer["result"]
                return result
            self.events.append(answer)

    def open(self, file: Path) -> None:
        """Load a file, and wait until it is there."""
        self.events.clear()
        self.call("Page.navigate", url=file.resolve().as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next())

    def show(self, width: int, *, dark: bool = False, media: str = "") -> None:
        """The page in a window so wide, in light or dark, or as `media="print"` has it."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media=media, features=[scheme])

    def use_font(self, font: Font) -> None:
        """Set all text of the page in one font, whatever its style sheet asks for."""
        assert self.evaluate(f"{_IS_INSTALLED}({json.dumps(font.family)})"), (
            f"the font {font.family} is not installed, and reports are tested with it: {_INSTALL}"
        )
        style = (
            f"* {{ font-family: '{font.family}' !important; letter-spacing: {font.spacing_em}em !important }}"
        )
        self.evaluate(f"document.head.appendChild(document.createElement('style')).textContent = {style!r}")

    def evaluate(self, script: str) -> Any:
        """The value of an expression in the page."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def screenshot(self) -> bytes:
        """The whole page as a PNG."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        taken = self.call("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        return base64.b64decode(taken["data"])

    def pdf(self) -> bytes:
        """The page printed on A4 with a dark colour scheme on screen and without backgrounds."""
        scheme = {"name": "prefers-color-scheme", "value": "dark"}
        self.call("Emulation.setEmulatedMedia", media="", features=[scheme])
        printed = self.call(
            "Page.printToPDF",
            paperWidth=8.27,
            paperHeight=11.69,
            preferCSSPageSize=True,
            printBackground=False,
        )
        return base64.b64decode(printed["data"])

    def complaints(self) -> list[str]:
        """Everything the console would show in red or yellow."""
        logged = [event["params"]["entry"]["text"] for event in self._named("Log.entryAdded")]
        thrown = [
            str(event["params"]["exceptionDetails"]) for event in self._named("Runtime.exceptionThrown")
        ]
        printed = [
            str(event["params"]["args"])
            for event in self._named("Runtime.consoleAPICalled")
            if event["params"]["type"] in ("error", "warning", "assert")
        ]
        return [*logged, *thrown, *printed]

    def requests(self) -> list[str]:
        """Every address that was asked for."""
        return [event["params"]["request"]["url"] for event in self._named("Network.requestWillBeSent")]

    def _named(self, method: str) -> Iterator[dict[str, Any]]:
        return (event for event in self.events if event.get("method") == method)

    def _next(self) -> dict[str, Any]:
        until = time.monotonic() + _PATIENCE_SECONDS
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], max(0.0, until - time.monotonic()))
            piece = os.read(self._read, 1 << 20) if ready else b""
            if not piece:
                raise AssertionError("the browser does not answer")
            self._buffer += piece
        first, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(first)
        return message


@contextmanager
def opened_browser() -> Iterator[Tab]:
    """A browser with an empty page and a profile of its own; it ends with the block."""
    program = browser_path()
    to_browser, from_browser = os.pipe(), os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [program, *_FLAGS, f"--user-data-dir={profile}", "about:blank"]
        process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{to_browser[0]} 4>&{from_browser[1]}', "browser", *command],
            pass_fds=(to_browser[0], from_browser[1]),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "HOME": profile, "XDG_CONFIG_HOME": profile, "XDG_CACHE_HOME": profile},
        )
        os.close(to_browser[0])
        os.close(from_browser[1])
        try:
            tab = Tab(to_browser[1], from_browser[0])
            yield tab
            with suppress(AssertionError):
                tab.call("Browser.close")
        finally:
            os.close(to_browser[1])
            os.close(from_browser[0])
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
