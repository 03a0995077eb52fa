"""A headless Chromium that tests talk to over its DevTools pipe; needs nothing but the standard library."""

import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "headless_shell")
ARRANGE = """
import fcntl, os, sys
aside = [fcntl.fcntl(int(given), fcntl.F_DUPFD, 100) for given in sys.argv[1:3]]
for place, given in zip((3, 4), aside):
    os.dup2(given, place)
os.execv(sys.argv[3], sys.argv[3:])
"""
"""Makes two descriptors those that DevTools reads and writes, 3 and 4, and becomes the browser."""
LONGEST = 30.0
"""Seconds that anything may take."""


def find_browser() -> str | None:
    """The browser of this machine, if it has one; `$MESAX_BROWSER` names another."""
    named = [os.environ["MESAX_BROWSER"]] if os.environ.get("MESAX_BROWSER") else list(NAMES)
    return next((path for name in named if (path := shutil.which(name))), None)


class Browser:
    """One tab."""

    def __init__(self, read: int, write: int) -> None:
        self._read, self._write, self._rest, self._number = read, write, b"", 0
        self._events: list[dict[str, Any]] = []
        target = self._call("Target.createTarget", {"url": "about:blank"})["targetId"]
        self._session = self._call("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: object) -> dict[str, Any]:
        return self._call(method, parameters, self._session)

    def _call(self, method: str, parameters: dict[str, object], session: str | None = None) -> dict[str, Any]:
        self._number += 1
        message: dict[str, object] = {"id": self._number, "method": method, "params": parameters}
        message |= {"sessionId": session} if session else {}
        os.write(self._write, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + LONGEST
        while time.monotonic() < deadline:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return dict(answer["result"])
            self._events.append(answer)
        raise TimeoutError(method)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            part = os.read(self._read, 1 << 20)
            assert part, "the browser has gone"
            self._rest += part
        line, _, self._rest = self._rest.partition(b"\0")
        return dict(json.loads(line))

    def open(self, path: Path, width: int = 1100, height: int = 900, dark: bool = False, scripts: bool = True) -> None:
        """Load a file and wait until it is there."""
        self.visit(path.resolve().as_uri(), width, height, dark, scripts)

    def visit(self, url: str, width: int = 1100, height: int = 900, dark: bool = False, scripts: bool = True) -> None:
        """The same for an address."""
        self._events.clear()
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Emulation.setScriptExecutionDisabled", value=not scripts)
        self.call("Page.navigate", url=url)
        deadline = time.monotonic() + LONGEST
        while not any(event.get("method") == "Page.loadEventFired" for event in self._events):
            assert time.monotonic() < deadline, "the page does not load"
            self._events.append(self._next())

    def js(self, expression: str) -> Any:
        """The value of an expression on the page."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def wait_for(self, expression: str) -> Any:
        """The value of an expression once it is true."""
        deadline = time.monotonic() + LONGEST
        while not (value := self.js(expression)):
            assert time.monotonic() < deadline, f"never true: {expression}"
            time.sleep(0.02)
        return value

    def place(self, selector: str, across: float = 0.5, down: float = 0.5) -> tuple[float, float]:
        """A point of an element on the screen, once it is there."""
        chosen = f"document.querySelector({json.dumps(selector)})"
        self.wait_for(f"!!{chosen}")
        self.js(f"{chosen}.scrollIntoView({{block: 'center', behavior: 'instant'}})")
        self.js("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        box = self.js(
            f"(({{left, top, width, height}}) => [left, top, width, height])({chosen}.getBoundingClientRect())"
        )
        return box[0] + across * box[2], box[1] + down * box[3]

    def hover(self, selector: str, across: float = 0.5, down: float = 0.5) -> None:
        x, y = self.place(selector, across, down)
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def click(self, selector: str, across: float = 0.5, down: float = 0.5) -> None:
        x, y = self.place(selector, across, down)
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=1, clickCount=1)

    def complaints(self) -> list[str]:
        """Errors of scripts, and whatever the page's policy has refused."""
        self.js("0")
        thrown = [e["params"]["exceptionDetails"] for e in self._events if e.get("method") == "Runtime.exceptionThrown"]
        logged = [e["params"]["entry"] for e in self._events if e.get("method") == "Log.entryAdded"]
        return [str(entry) for entry in [*thrown, *logged]]

    def requests(self) -> list[str]:
        """What the page has asked for, itself aside."""
        asked = [e["params"]["request"]["url"] for e in self._events if e.get("method") == "Network.requestWillBeSent"]
        return [url for url in asked[1:] if not url.startswith("data:")]

    def picture(self, path: Path, whole: bool = False) -> Path:
        """A screenshot."""
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))
        return path


@contextmanager
def opened_browser(command: str) -> Iterator[Browser]:
    """A browser with an empty profile, ended afterwards."""
    orders, answers = os.pipe(), os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:  # the browser leaves last words
        flags = [
            "--headless",
            "--remote-debugging-pipe",
            "--no-first-run",
            "--disable-gpu",
            f"--user-data-dir={profile}",
        ]
        flags += ["--disable-dev-shm-usage", "--disable-background-networking", "--hide-scrollbars"]
        flags += ["--no-sandbox"] if os.geteuid() == 0 else []
        process = subprocess.Popen(
            [sys.executable, "-c", ARRANGE, str(orders[0]), str(answers[1]), command, *flags],
            pass_fds=(orders[0], answers[1]),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(orders[0])
        os.close(answers[1])
        try:
            yield Browser(answers[0], orders[1])
        finally:
            os.close(orders[1])
            os.close(answers[0])
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
