"""A release: what is in the sdist and in the wheel, and that the wheel and each extra alone need what they say."""

import importlib.metadata
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import keras_vattn

ROOT = pathlib.Path(__file__).resolve().parents[1]
LINK = re.compile(r"\[[^\]]*\]\(([^)]*)\)")
FENCE = re.compile(r"^```.*?^```$", re.M | re.S)

# What is done in an environment of the wheel and one extra, "" for none: each in a process of its own.
USES = {
    "": """
import importlib.util

import keras
import numpy as np

import keras_vattn

for module in ("altair", "keras_hub", "matplotlib", "tensorflow_text", "tyro", "yaml"):
    assert importlib.util.find_spec(module) is None, module
try:
    keras_vattn.plots.alignment_heat_map(np.eye(2), ["a", "b"], ["c", "d"])
except ImportError as error:
    assert 'pip install "keras_vattn[plots]"' in str(error)
else:
    raise AssertionError("a picture without matplotlib")

query, value = keras.Input((3, 4)), keras.Input((5, 4))
layers = [
    keras_vattn.DeterministicAttention(),
    keras_vattn.GaussianAttention(),
    keras_vattn.BayesianAttention(),
    keras_vattn.DirichletAttention(),
    keras_vattn.Attention(alignment="gumbel_softmax"),
    keras_vattn.MultiHeadAttention(2, 4, alignment="lognormal", prior="contextual"),
]
model = keras.Model([query, value], keras.layers.add([layer(query, value) for layer in layers]))
model.compile("adam", "mse")
x = np.random.default_rng(0).normal(size=(4, 3, 4)), np.random.default_rng(1).normal(size=(4, 5, 4))
model.fit(x, x[0], verbose=0)
model.save("model.keras")
np.testing.assert_array_equal(model(x), keras.models.load_model("model.keras")(x))
""",
    "plots": """
import numpy as np

import keras_vattn

keras_vattn.plots.alignment_heat_map(np.eye(2), ["a", "b"], ["c", "d"], path="map.png")
page = keras_vattn.plots.interactive_alignment(np.eye(2), ["a", "b"], ["c", "d"]).to_html(inline=True)
assert len(page) > 500_000 and "<script src" not in page
""",
    "text": """
import io

import sentencepiece
import tensorflow_text

model = io.BytesIO()
sentences = iter(["a red house", "a blue house", "a red boat"])
sentencepiece.SentencePieceTrainer.train(
    sentence_iterator=sentences, model_writer=model, vocab_size=20, model_type="bpe", minloglevel=2
)
ids = tensorflow_text.SentencepieceTokenizer(model.getvalue()).tokenize(["a blue boat"])[0]
assert ids.numpy().tolist() == sentencepiece.SentencePieceProcessor(model_proto=model.getvalue()).encode("a blue boat")
""",
    "hub": """
import keras_hub
import numpy as np

import keras_vattn

backbone = keras_hub.models.BertBackbone(
    vocabulary_size=30, num_layers=1, num_heads=2, hidden_dim=8, intermediate_dim=8, max_sequence_length=6
)
x = {"token_ids": np.ones((1, 6)), "segment_ids": np.zeros((1, 6)), "padding_mask": np.ones((1, 6))}
draws = keras_vattn.posterior_predictive(keras_vattn.to_bayesian(backbone, layers=None), x, num_samples=3)
assert np.std(draws["sequence_output"], axis=0).max() > 0
""",
    "apps": """
import importlib
import pathlib
import pkgutil

import applications
from applications.common.command_line import main
from applications.graphs.options import PROGRAM

for module in pkgutil.walk_packages(applications.__path__, "applications."):
    importlib.import_module(module.name)
try:
    main(PROGRAM, ["train", "--help"])
except SystemExit as end:
    assert end.code == 0
nodes = [f"n{i},{i % 2},{i % 3},{('train', 'valid', 'test')[i // 2 % 3]}" for i in range(12)]
pathlib.Path("nodes.csv").write_text("\\n".join(["node,label,x,split", *nodes]))
pathlib.Path("edges.csv").write_text("\\n".join(f"n{i},n{(i + 2) % 12}" for i in range(12)))
files = ("--nodes", "nodes.csv", "--edges", "edges.csv", "--out", "run")
assert main(PROGRAM, ["train", *files, "--model", "gat", "--jit", "off", "--max-steps", "2"]) == 0
""",
    "captions": """
from applications.captioning.metrics import caption_metrics

report = caption_metrics(["a red boat on a lake"] * 2, [["a red boat on a lake"], ["a blue house"]], java=False)
assert 0 < report["bleu_1"] < 1
""",
    "docs": """
import importlib

for module in ("sphinx.cmd.build", "autoapi", "furo", "myst_nb", "sphinx_copybutton", "sphinx-mathjax-offline"):
    importlib.import_module(module)
""",
}
# A copy of a process that has imported the library takes less than a process that imports it.
EACH_USE = """
import json, os, sys, traceback
import keras_vattn
assert keras_vattn.__file__.startswith(sys.prefix), keras_vattn.__file__
failed = []
for extra, (folders, code) in json.load(sys.stdin).items():
    process = os.fork()
    if not process:
        try:
            sys.path += folders
            exec(compile(code, extra or "none", "exec"), {})
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    if os.waitpid(process, 0)[1]:
        failed.append(extra)
print("RESULT", json.dumps(failed))
"""


def run(*words, folder, text=None, python=sys.executable):
    result = subprocess.run([python, *map(str, words)], cwd=folder, input=text, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result


def build(folder, *words, source=ROOT):
    run("-m", "hatchling", "build", "-d", folder, *words, folder=source)
    return next(folder.glob("*.whl"))


def contents(wheel):
    with zipfile.ZipFile(wheel) as file:
        return {name: file.read(name) for name in file.namelist()}


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    """The wheel, and the folder of the unpacked sdist."""
    folder = tmp_path_factory.mktemp("release")
    wheel = build(folder)
    with tarfile.open(next(folder.glob("*.tar.gz"))) as file:
        file.extractall(folder, filter="data")
    return wheel, folder / f"keras_vattn-{keras_vattn.__version__}"


@pytest.mark.slow
@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="git says what the project has")
def test_sdist_has_what_is_tracked_without_ci_and_makes_the_same_wheel(release, tmp_path):
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
@pytest.mark.parametrize("address", [None, "https://host.example/vattn"])
def test_long_description_has_no_relative_link(release, address, tmp_path):
    # Without PKG-INFO, which has the long description already.
    sdist = shutil.copytree(release[1], tmp_path / release[1].name, ignore=shutil.ignore_patterns("PKG-INFO"))
    if address:
        page = sdist / "pyproject.toml"
        text = page.read_text("utf-8")
        page.write_text(text.replace("[project.urls]\n", f'[project.urls]\nRepository = "{address}"\n'), "utf-8")
    wheel = build(tmp_path, "-t", "wheel", source=sdist)
    text = importlib.metadata.PathDistribution(zipfile.Path(wheel, f"{sdist.name}.dist-info/")).metadata.get_payload()
    readme = (ROOT / "README.md").read_text("utf-8")
    assert FENCE.findall(text) == FENCE.findall(readme)
    links = LINK.findall(FENCE.sub("", text))
    assert all(link.startswith("https://") for link in links)
    assert not re.search(r'(?:src|href|srcset)="(?!https://)', text)
    relative = [link for link in LINK.findall(FENCE.sub("", readme)) if not link.startswith("https://")]
    tag = rf"{address}/(?:blob|raw)/v{keras_vattn.__version__}/"
    assert [re.sub(tag, "", link) for link in links if re.match(tag, link)] == (relative if address else [])


@pytest.mark.slow
def test_version_is_the_same_everywhere():
    assert f"\nversion: {keras_vattn.__version__}\n" in (ROOT / "CITATION.cff").read_text("utf-8")
    newest = re.search(r"^## \[(.*?)\] - (.*)$", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.M)
    assert newest[1] == keras_vattn.__version__
    assert f"\ndate-released: {newest[2]}\n" in (ROOT / "CITATION.cff").read_text("utf-8")


def closure(requirements):
    """Return the names of what is installed for requirements, and for the requirements of these."""
    pairs, todo = set(), list(requirements)
    while todo:
        requirement = Requirement(todo.pop())
        new = {(canonicalize_name(requirement.name), extra) for extra in {"", *requirement.extras}} - pairs
        pairs |= new
        for name, extra in new:
            todo += required(importlib.metadata.distribution(name), extra)
    return {name for name, _ in pairs}


def required(distribution, extra):
    """Return the requirements of a distribution that hold here with one extra, "" for none."""
    parsed = [(text, Requirement(text).marker) for text in distribution.requires or ()]
    return [text for text, marker in parsed if marker is None or marker.evaluate({"extra": extra})]


def link(names, folder):
    """Make a folder of links to all that distributions have in the environment of the tests."""
    for name in names:
        distribution = importlib.metadata.distribution(name)
        for file in distribution.files:
            top = distribution.locate_file(file.parts[0])
            # A folder without __init__.py may be shared.
            shared = len(file.parts) > 1 and not (top / "__init__.py").exists()
            place = folder.joinpath(*file.parts[: 2 if shared else 1])
            if file.parts[0] not in ("..", "__pycache__") and not place.is_symlink():
                place.parent.mkdir(parents=True, exist_ok=True)
                place.symlink_to(distribution.locate_file(place.relative_to(folder)))


@pytest.mark.slow
def test_the_wheel_and_each_extra_alone_need_what_they_say(release, tmp_path):
    venv.create(tmp_path / "environment", symlinks=True)
    (site,) = (tmp_path / "environment" / "lib").glob("python*/site-packages")
    install = ["pip", "install", "--no-index", "--no-deps", "--no-compile", "--target", site]
    run("-m", *install, release[0], folder=tmp_path)
    (wheel,) = importlib.metadata.distributions(name="keras_vattn", path=[str(site)])
    core = closure(required(wheel, ""))
    link(core, site)

    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "applications").symlink_to(ROOT / "applications")
    uses = {}
    for extra, code in USES.items():
        link(closure(required(wheel, extra)) - core, tmp_path / f"extra-{extra}")
        uses[extra] = [[str(tmp_path / f"extra-{extra}"), str(programs)], code]
    python = tmp_path / "environment" / "bin" / "python"
    result = run("-I", "-c", EACH_USE, folder=tmp_path, text=json.dumps(uses), python=python)
    assert json.loads(result.stdout.partition("RESULT")[2]) == [], result.stderr
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    assert declared.keys() - USES.keys() == {"notebooks", "test"}
