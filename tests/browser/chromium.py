"""Headless Chromium, driven by its DevTools protocol through a pipe.

The pipe is what Puppeteer and Playwright use, too. It needs no package that has to fit to the version of
Debian's Chromium: Playwright is made for a browser of its own, which it downloads, and brings Node.js;
Selenium needs ChromeDriver and a dozen packages. No port is open, and a browser whose owner dies ends, too.

    with Chromium(folder) as browser:
        browser.open("http://127.0.0.1:3000/assets")
        browser.click("button", "Materialize")
        browser.until_shown("Launched run")
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from tests.eventually import WAIT_S

CALL_S: Final = 30.0
END_S: Final = 10.0
STEP_S: Final = 0.2
MESSAGE_BYTES_MAX: Final = 64 * 1024 * 1024  # a picture of the window has some 0.3 MB
WIDTH, HEIGHT = 1400, 900
CTRL, SHIFT = 2, 8  # modifiers of the protocol
NAMES: Final = ("chromium", "chromium-browser", "google-chrome")
OPTIONS: Final = (
    "--headless",
    "--remote-debugging-pipe",
    "--no-first-run",
    "--no-proxy-server",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--disable-sync",
    "--force-prefers-reduced-motion",
    "--hide-scrollbars",
    f"--window-size={WIDTH},{HEIGHT}",
)
ON_3_AND_4: Final = 'pipe=$0; exec "$@" 3<&"$pipe" 4>&"$pipe"'  # where Chromium reads and writes

PLACE: Final = """
((css, text) => {
  const said = node => (node.innerText || node.getAttribute('aria-label') || '').replace(/\\s+/g, ' ').trim();
  for (const node of document.querySelectorAll(css)) {
    if (!node.checkVisibility() || node.disabled || (text !== null && said(node) !== text)) continue;
    node.scrollIntoView({block: 'nearest', inline: 'nearest'});
    const box = node.getBoundingClientRect();
    const point = [box.x + box.width / 2, box.y + box.height / 2];
    const hit = document.elementFromPoint(...point);
    if (hit && node.contains(hit)) return point;
  }
  return null;
})"""
"""The middle of the first element that a user could click: it is shown, enabled and not covered."""


class BrowserError(Exception):
    """The browser said no, or has ended."""


def found() -> str | None:
    """Path of the browser on this machine."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Chromium:
    """One browser with one page. Every wait has a limit; its last words are what the page shows."""

    def __init__(self, folder: Path) -> None:
        program = found()
        if program is None:
            raise BrowserError(f"no {NAMES[0]} on the PATH: make browser installs it")
        folder.mkdir(parents=True, exist_ok=True)
        self._log = folder / "chromium.log"
        self._pipe, theirs = socket.socketpair()
        self._pipe.settimeout(CALL_S)
        self._unread = b""
        self._calls = 0
        self._session: str | None = None
        options = [*OPTIONS, f"--user-data-dir={folder / 'profile'}"]
        if os.geteuid() == 0:
            options.append("--no-sandbox")  # Chromium refuses to start as root with it
        with self._log.open("wb") as log, theirs:
            self._process = subprocess.Popen(
                ["bash", "-c", ON_3_AND_4, str(theirs.fileno()), program, *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        try:
            self._attach()
        except BaseException:
            self.close()
            raise

    def _attach(self) -> None:
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = str(attached["sessionId"])
        metrics = {"width": WIDTH, "height": HEIGHT, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **metrics)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command of the protocol. Raises BrowserError: it failed."""
        self._calls += 1
        message: dict[str, Any] = {"id": self._calls, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        try:
            self._pipe.sendall(json.dumps(message).encode() + b"\0")
            while (answer := self._read()).get("id") != self._calls:
                pass  # an event
        except OSError as error:  # among them a timeout
            raise BrowserError(f"{method}: {error!r}\n{self._said()}") from error
        if "error" in answer:
            raise BrowserError(f"{method}: {answer['error']['message']}")
        return dict(answer["result"])

    def _read(self) -> dict[str, Any]:
        parts = [self._unread]
        while b"\0" not in parts[-1]:
            parts.append(self._pipe.recv(1024 * 1024))
            if not parts[-1] or sum(map(len, parts)) > MESSAGE_BYTES_MAX:
                raise ConnectionError("the browser has ended, or its answer has no end")
        message, _, self._unread = b"".join(parts).partition(b"\0")
        return dict(json.loads(message))

    def _said(self) -> str:
        return self._log.read_text(errors="replace")[-2000:]

    def evaluate(self, script: str) -> Any:
        """The value of a JavaScript expression. Raises BrowserError: it threw."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise BrowserError(f"{script}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def open(self, url: str) -> None:
        failed = self.call("Page.navigate", url=url).get("errorText")
        if failed:
            raise BrowserError(f"{url}: {failed}")

    @property
    def text(self) -> str:
        """All that the page shows."""
        return " ".join(str(self.evaluate("document.body ? document.body.innerText : ''")).split())

    @property
    def url(self) -> str:
        return str(self.evaluate("location.href"))

    def until(
        self, condition: Callable[[], Any], what: str, timeout_s: float = WAIT_S, step_s: float = STEP_S
    ) -> Any:
        """What `condition` returns, once that is something."""
        deadline = time.monotonic() + timeout_s
        while not (value := condition()):
            if time.monotonic() > deadline:
                picture = self.picture(self._log.with_name("last.png"))
                raise AssertionError(
                    f"not within {timeout_s:.0f} s: {what}\n{picture}\n{self.url}\n{self.text}"
                )
            time.sleep(step_s)
        return value

    def until_shown(self, text: str, timeout_s: float = WAIT_S) -> None:
        self.until(lambda: text in self.text, f"the page shows {text!r}", timeout_s)

    def place(self, css: str, text: str | None = None) -> tuple[float, float] | None:
        """Where one would click on the first such element, with this text or label; None: on none."""
        point = self.evaluate(f"{PLACE}({json.dumps(css)}, {json.dumps(text)})")
        return None if point is None else (point[0], point[1])

    def click(self, css: str, text: str | None = None, *, shift: bool = False) -> None:
        """With the mouse, once the element can be clicked and has stopped moving."""
        before: list[tuple[float, float] | None] = [None]

        def rests() -> tuple[float, float] | None:
            now = self.place(css, text)
            resting, before[0] = now == before[0], now
            return now if resting else None

        x, y = self.until(rests, f"{css} {text or ''} can be clicked")
        for kind, pressed in (("mouseMoved", 0), ("mousePressed", 1), ("mouseReleased", 1)):
            button = "left" if pressed else "none"
            where = {
                "x": x,
                "y": y,
                "button": button,
                "clickCount": pressed,
                "modifiers": SHIFT if shift else 0,
            }
            self.call("Input.dispatchMouseEvent", type=kind, **where)

    def write(self, text: str) -> None:
        """Into what has the focus."""
        self.call("Input.insertText", text=text)

    def select_all(self) -> None:
        """In the text field that has the focus."""
        key = {"key": "a", "code": "KeyA", "windowsVirtualKeyCode": ord("A"), "modifiers": CTRL}
        self.call("Input.dispatchKeyEvent", type="keyDown", commands=["selectAll"], **key)
        self.call("Input.dispatchKeyEvent", type="keyUp", **key)

    def press_enter(self) -> None:
        """In the text field that has the focus."""
        key = {"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13}
        self.call("Input.dispatchKeyEvent", type="keyDown", text="\r", **key)
        self.call("Input.dispatchKeyEvent", type="keyUp", **key)

    def picture(self, path: Path) -> Path:
        """A PNG of the window, after what has changed is painted."""
        self.evaluate(f"new Promise(done => {'requestAnimationFrame(() => ' * 2}done(1){')' * 2})")
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))
        return path

    def close(self) -> None:
        """Ends it: by the end of its pipe, else by force."""
        self._pipe.close()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(END_S)

    def __enter__(self) -> Chromium:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
