"""Tests that the site builds without warnings, and that its pages work in a browser without a network."""

import contextlib
import functools
import http.server
import pathlib
import subprocess
import sys
import threading

import pytest
from browser import browser, missing

ROOT = pathlib.Path(__file__).parents[2]
# A text that each page must show, and the minimum number of formulas on the page.
PAGES = {
    "index.html": ("What you gain", 0),
    "docs/api.html": ("What is in the box", 0),
    "docs/uncertainty.html": ("mutual information", 0),
    "docs/pretrained_models.html": ("to_bayesian", 0),
    "docs/applications/nmt.html": ("applications.nmt", 0),
    "docs/notebooks.html": ("Bayesian attention on a graph", 0),
    "ARCHITECTURE.html": ("The packages", 0),
    "notebooks/alignments.html": ("What the alignments do", 0),
    "api/keras_vattn/GaussianAttention.html": ("alignment_statistics", 1),
    "api/keras_vattn/Weibull.html": ("kl_estimator", 1),
    "api/keras_vattn/metrics/index.html": ("expected_calibration_error", 1),
    "CHANGELOG.html": ("0.2.0", 0),
}
WINDOWS = {"light": (1200, "light"), "dark": (1200, "dark"), "phone": (400, "light")}


@contextlib.contextmanager
def served(folder):
    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=folder))
    threading.Thread(target=server.serve_forever).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()


def check_pages(address, page):
    for name, (text, formulas) in PAGES.items():
        assert text in page.open(address + name), name
        if formulas:
            page.wait("div.math mjx-math")
            # MathJax does not convert formulas that it cannot parse.
            assert len(page.elements("div.math mjx-math")) == len(page.elements("div.math")) >= formulas, name
            assert not page.elements("mjx-merror, [data-mjx-error]"), name
        backgrounds = {}
        for window, (width, scheme) in WINDOWS.items():
            page.look(width, 900, scheme)
            assert page.overflow() <= 0, (name, window)
            backgrounds[window] = sum(page.background())
        assert backgrounds["dark"] < 150 < 600 < backgrounds["light"], name
        assert page.errors == page.requests == [], name


def check_search(address, page):
    page.open(address + "search.html?q=GaussianAttention", wait_for="#search-results li")
    assert any("keras_vattn.GaussianAttention" in text for text in page.texts("#search-results li"))


@pytest.mark.slow
def test_site(tmp_path):
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-c", "docs", ".", str(tmp_path)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    # The site has the same anchors as GitHub.
    assert 'id="from-another-run"' in (tmp_path / "docs/run_folder.html").read_text("utf-8")
    # This is one test, because two concurrent builds would write to the same folder of API pages.
    if missing():
        pytest.skip(f"the site was built, but no browser can open it: {missing()}")
    with served(tmp_path) as address, browser() as page:
        check_pages(address, page)
        check_search(address, page)
