"""Runs a headless Chromium for tests of pages, and records what a page shows and which addresses it requests."""

import contextlib
import functools
import json
import os
import pathlib
import re
import shutil
import urllib.parse

from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.select import Select
from selenium.webdriver.support.ui import WebDriverWait

_SECONDS = 20


def missing():
    """Return which programs a browser test lacks, or "". The variables CHROME and CHROMEDRIVER name the binaries."""
    return ", ".join(f"no {name}" for name, path in _binaries().items() if path is None)


@functools.cache
def _binaries():
    # Selenium's own search would load a driver from the network.
    chromium = os.environ.get("CHROME") or shutil.which("chromium") or shutil.which("google-chrome")
    return {"chromium": chromium, "chromedriver": os.environ.get("CHROMEDRIVER") or shutil.which("chromedriver")}


@contextlib.contextmanager
def browser(width=1200, height=900):
    """Start a browser for a `with` block, and yield its `Page`."""
    options = webdriver.ChromeOptions()
    options.binary_location = _binaries()["chromium"]
    for argument in ("headless=new", "no-sandbox", "disable-gpu", "disable-dev-shm-usage", "hide-scrollbars"):
        options.add_argument(f"--{argument}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options, webdriver.ChromeService(_binaries()["chromedriver"]))
    try:
        page = Page(driver)
        page.look(width, height)
        yield page
    finally:
        driver.quit()


class Page:
    """The page that a browser shows.

    Attributes:
        driver: Selenium's driver, for actions without a method in this class.
        errors: Error messages of the console since `open`: list of str.
        requests: Addresses on other hosts that the page has requested since `open`: list of str.
    """

    def __init__(self, driver):
        self.driver, self._own = driver, urllib.parse.urlsplit("")
        self._errors, self._requests = [], []

    def open(self, place, wait_for="body"):
        """Open an address or a file, wait until an element exists, and return the visible text of the page."""
        url = place if "://" in str(place) else pathlib.Path(place).resolve().as_uri()
        self._collect()
        self._own, self._errors, self._requests = urllib.parse.urlsplit(url), [], []
        self.driver.get(url)
        self.wait(wait_for)
        return self.text()

    def wait(self, css):
        """Wait until an element exists, and return this element."""
        return WebDriverWait(self.driver, _SECONDS).until(lambda driver: driver.find_element(By.CSS_SELECTOR, css))

    def wait_until(self, condition):
        """Wait until a function without arguments returns a true value, and return this value."""
        return WebDriverWait(self.driver, _SECONDS).until(lambda _: condition())

    def elements(self, css):
        return self.driver.find_elements(By.CSS_SELECTOR, css)

    def text(self, css="body"):
        """Return the visible text of an element."""
        return self.wait(css).text

    def texts(self, css):
        """Return the texts of all elements, including those in an SVG."""
        return [element.get_attribute("textContent") for element in self.elements(css)]

    def select(self, css, text):
        """Choose the option of a `<select>` that has this text."""
        Select(self.wait(css)).select_by_visible_text(text)

    def look(self, width=1200, height=900, scheme="light"):
        """Set the size of the window in pixels, and the colour scheme, "light" or "dark"."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self._command("Emulation.setDeviceMetricsOverride", size)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self._command("Emulation.setEmulatedMedia", {"features": features})

    def background(self):
        """Return the background colour of the page as red, green and blue, 0 to 255."""
        color = self.driver.execute_script("return getComputedStyle(document.body).backgroundColor")
        return [int(part) for part in re.findall(r"\d+", color)[:3]]

    def overflow(self):
        """Return by how many pixels the page is wider than the window."""
        return self.driver.execute_script("return document.documentElement.scrollWidth - window.innerWidth")

    @property
    def errors(self):
        self._collect()
        return list(self._errors)

    @property
    def requests(self):
        self._collect()
        return list(self._requests)

    def _collect(self):
        self._errors += [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                url = urllib.parse.urlsplit(message["params"]["request"]["url"])
                # A file has no host. A page from a server may request addresses on its own host.
                if url.netloc and url.netloc != self._own.netloc:
                    self._requests.append(url.geturl())

    def _command(self, name, arguments):
        return self.driver.execute_cdp_cmd(name, arguments)
