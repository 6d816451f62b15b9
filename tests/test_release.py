"""Tests a release: the files of the sdist and the wheel, and the installed wheel with its requirements."""

import importlib.metadata
import pathlib
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile

import pytest
from packaging.requirements import Requirement

import keras_vattn

ROOT = pathlib.Path(__file__).resolve().parents[1]
USE = """
import sys

import keras
import numpy as np

import keras_vattn

assert keras_vattn.__file__.startswith(sys.argv[1]), keras_vattn.__file__
query, value = keras.Input((3, 4)), keras.Input((5, 4))
model = keras.Model([query, value], keras_vattn.BayesianAttention()(query, value))
model.compile("adam", "mse", run_eagerly=True)
x = np.ones((4, 3, 4)), np.ones((4, 5, 4))
model.fit(x, x[0], verbose=0)
"""


def run(*words, folder):
    result = subprocess.run([sys.executable, *map(str, words)], cwd=folder, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def build(folder, *words, source=ROOT):
    run("-m", "hatchling", "build", "-d", folder, *words, folder=source)
    return next(folder.glob("*.whl"))


def contents(wheel):
    with zipfile.ZipFile(wheel) as file:
        return {name: file.read(name) for name in file.namelist()}


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    """Return the wheel and the folder of the unpacked sdist."""
    folder = tmp_path_factory.mktemp("release")
    wheel = build(folder)
    with tarfile.open(next(folder.glob("*.tar.gz"))) as file:
        file.extractall(folder, filter="data")
    return wheel, folder / f"keras_vattn-{keras_vattn.__version__}"


@pytest.mark.slow
@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="git is needed to list the files of the project")
def test_sdist_has_the_tracked_files_without_ci_and_makes_the_same_wheel(release, tmp_path):
    wheel, sdist = release
    tracked, new = (
        set(subprocess.check_output(["git", "ls-files", *options], cwd=ROOT, text=True).splitlines())
        for options in (["--cached"], ["--others", "--exclude-standard"])
    )
    shipped = {str(path.relative_to(sdist)) for path in sdist.rglob("*") if path.is_file()}
    assert shipped - new == {path for path in tracked if not path.startswith((".ci/", ".github/"))} | {"PKG-INFO"}
    assert contents(build(tmp_path, "-t", "wheel", source=sdist)) == contents(wheel)
    names = {name for name in contents(wheel) if not name.startswith("keras_vattn/")}
    metadata = f"keras_vattn-{keras_vattn.__version__}.dist-info/"
    assert names == {metadata + name for name in ("METADATA", "RECORD", "WHEEL", "licenses/LICENSE")}


@pytest.mark.slow
def test_the_installed_wheel_trains_and_names_its_requirements(release, tmp_path):
    site = tmp_path / "site"
    install = ["pip", "install", "--no-index", "--no-deps", "--no-compile", "--target", site]
    run("-m", *install, release[0], folder=tmp_path)
    run("-c", f"import sys; sys.path.insert(0, {str(site)!r})\n{USE}", site, folder=tmp_path)
    (wheel,) = importlib.metadata.distributions(name="keras_vattn", path=[str(site)])
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    core = {Requirement(text).name for text in wheel.requires if "extra" not in text}
    assert core == {Requirement(text).name for text in project["dependencies"]}
    assert set(wheel.metadata.get_all("Provides-Extra")) == set(project["optional-dependencies"])


@pytest.mark.slow
def test_version_is_the_same_everywhere():
    assert f"\nversion: {keras_vattn.__version__}\n" in (ROOT / "CITATION.cff").read_text("utf-8")
    newest = re.search(r"^## \[(.*?)\] - (.*)$", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.M)
    assert newest[1] == keras_vattn.__version__
    assert f"\ndate-released: {newest[2]}\n" in (ROOT / "CITATION.cff").read_text("utf-8")
