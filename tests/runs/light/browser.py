"""A real browser without a screen: what it shows, what it asks for, and what it complains of."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service

from tests.real.tools import unavailable

WIDE, PHONE = (1280, 900), (390, 844)


@dataclass
class Browser:
    """Chromium, driven. Places and sizes are in CSS pixels."""

    driver: Chrome

    def forget(self) -> None:
        """As it was at the start."""
        self.driver.get("about:blank")
        self.driver.delete_all_cookies()
        self.size(*WIDE)
        self.prefer("light")
        self._do("Emulation.setScriptExecutionDisabled", value=False)
        self._reported("performance"), self._reported("browser")

    def open(self, url: str) -> None:
        self.driver.get(url)

    def size(self, width: int, height: int) -> None:
        """How large the window is; a narrow one is a phone's."""
        self._do(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )

    def prefer(self, scheme: str) -> None:
        """``light`` or ``dark``."""
        self._do("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def without_scripts(self) -> None:
        """Pages opened from now on run none."""
        self._do("Emulation.setScriptExecutionDisabled", value=True)

    def tell(self, expression: str) -> Any:
        """What an expression of JavaScript gives, asked by the test and not by the page."""
        reported = self._do("Runtime.evaluate", expression=expression, returnByValue=True)
        return reported["result"].get("value")

    def complaints(self) -> list[str]:
        """What stands in the console since it was last asked for: errors, and what a policy refused."""
        return [entry["message"] for entry in self._reported("browser")]

    def requests(self) -> list[str]:
        """Addresses asked for since this was last asked."""
        events = [json.loads(entry["message"])["message"] for entry in self._reported("performance")]
        sent = (each["params"] for each in events if each["method"] == "Network.requestWillBeSent")
        return [each["request"]["url"] for each in sent]

    def picture(self, path: Path, height: int = 0) -> None:
        """Write what the page shows, down to so many pixels, or all of it, as a PNG."""
        width, whole = self.tell("[innerWidth, document.documentElement.scrollHeight]")
        self.size(width, min(height or whole, whole))
        self.driver.save_screenshot(str(path))

    def _do(self, command: str, **reported: Any) -> Any:
        return self.driver.execute_cdp_cmd(command, reported)

    def _reported(self, log: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.driver.get_log(log)
        return found


@contextmanager
def started(*names: str) -> Iterator[Browser]:
    """The browser, which finds no other address than 127.0.0.1, and that by these names too."""
    paths = {name: shutil.which(name) for name in ("chromium", "chromedriver")}
    if not all(paths.values()):
        unavailable(f"chromium and chromedriver: found {paths}")
    with tempfile.TemporaryDirectory(prefix="stepwatch-browser-") as profile:
        driver = Chrome(_options(str(paths["chromium"]), profile, names), Service(str(paths["chromedriver"])))
        try:
            yield Browser(driver)
        finally:
            driver.quit()


def _options(program: str, profile: str, names: tuple[str, ...]) -> ChromeOptions:
    options = ChromeOptions()
    options.binary_location = program
    here = "".join(f"MAP {name} 127.0.0.1, " for name in names)
    for flag in (
        "headless",
        "no-sandbox",  # root has none
        "disable-gpu",
        "disable-background-networking",
        "disable-component-update",
        "disable-dev-shm-usage",
        "hide-scrollbars",
        f"host-resolver-rules={here}MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
        f"user-data-dir={profile}",
    ):
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    return options
