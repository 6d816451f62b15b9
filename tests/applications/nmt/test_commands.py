"""The program as it is used: train, evaluate, generate, export, and bad input."""

import csv
import dataclasses
import gzip
import json
import pathlib
import re
import shutil
import subprocess
import sys

import keras
import numpy as np
import pytest
import sacrebleu.metrics
import yaml
from nmt_cases import PAIRS, SMALL, call, small_options, write_pairs

from applications.common.comparison import Comparison
from applications.common.errors import InputError
from applications.common.readers import read_parallel
from applications.nmt import training
from applications.nmt.data import load_splits
from applications.nmt.encoding import Codec, EncodedPairs, of_pieces
from applications.nmt.evaluation import normalized
from applications.nmt.generation import Inference, Translator
from applications.nmt.options import Options, validate
from applications.nmt.training import HalveOnPlateau, load_run, read_weights

SENTENCES = ["der hund hat das haus gekauft", "mein freund hat den ball", ""]


def arguments_of(options):
    """The command line of `train` for options that differ from the default ones."""
    default, words = Options(), []
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        if value != getattr(default, field.name):
            words += [f"--{field.name.replace('_', '-')}", str(value)]
    return ["train", *words]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run of two epochs of a row with an inference network."""
    folder = tmp_path_factory.mktemp("nmt")
    options = small_options(folder, row="variational_enum", epochs=2)
    status, out, err = call(*arguments_of(options))
    assert status == 0, err
    return options, out


def test_a_run_leaves_what_it_should(trained):
    options, out = trained
    folder = pathlib.Path(options.out)
    record = json.loads((folder / "metrics.json").read_text())
    for name in ("model.keras", "config.yaml", "report.txt", "samples.txt", "curves.png", "saved_model/saved_model.pb"):
        assert (folder / name).exists(), name
    assert (folder / "alignments.png").stat().st_size > 5000
    drawn = json.loads((folder / "alignments.json").read_text())["pairs"]
    assert len(drawn) == 3
    for pair in drawn:
        for weights in pair["weights"].values():
            assert np.shape(weights) == (len(pair["target"]), len(pair["source"]))
            np.testing.assert_allclose(np.sum(weights, axis=1), 1.0, rtol=1e-5)
    sentences = [(folder / f"{name}.txt").read_text().splitlines() for name in ("hypotheses", "references")]
    assert [len(column) for column in sentences] == 2 * [record["report"]["num_sentences"]]
    quality = sacrebleu.metrics.BLEU(force=True).corpus_score(sentences[0], [sentences[1]])
    assert record["report"]["translation"]["bleu"] == pytest.approx(quality.score)
    for name in ("prior", "posterior", "exact"):
        assert 0 <= record["report"]["alignment"][f"{name}_entropy"] <= np.log(12)
    likelihood = record["report"]["likelihood"]
    assert likelihood["kind"] == "exact"
    assert 1 < likelihood["perplexity"] <= likelihood["elbo_perplexity"] < 100
    assert record["parameters"]["inference"] > 0
    assert record["steps"] == 2 * -(-record["data"]["train"]["pairs"] // 8)
    rows = list(csv.DictReader((folder / "history.csv").read_text().splitlines()))
    assert [row["epoch"] for row in rows] == ["1", "2"]
    assert {"loss", "val_loss", "latent_kl", "learning_rate"} <= set(rows[0])
    assert "perplexity (exact)" in out
    best = int(np.argmin([float(row["val_loss"]) for row in rows])) + 1
    assert record["best_epoch"] == best


def test_best_last_and_averaged_weights(trained):
    options, _ = trained
    folder = pathlib.Path(options.out) / "weights"
    epochs = [read_weights(folder / f"epoch_{number}.npz") for number in (1, 2)]
    for name, expected in (("last", epochs[1]), ("averaged", [(a + b) / 2 for a, b in zip(*epochs, strict=True)])):
        for one, other in zip(read_weights(folder / f"{name}.npz"), expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-7)
    with pytest.raises(InputError, match=r"--weights: expected one of best, last, averaged. Received: first"):
        load_run(options.out, "first")


def test_evaluate_crosses_inferences(trained, tmp_path):
    options, _ = trained
    status, out, err = call(
        "evaluate", "--run", options.out, "--inference", "exact", "kmax:2", "soft", "--k-curve", 3, "--weights", "last"
    )
    assert status == 0, err
    report = json.loads((pathlib.Path(options.out) / "evaluation.json").read_text())
    kinds = [found["likelihood"]["kind"] for found in report["inferences"]]
    assert kinds == ["exact", "K-max 2", "plug-in"]
    assert np.all(np.diff(report["k_curve"]["plain"]) >= 0)
    assert "kmax:2: perplexity (K-max 2)" in out


def test_evaluate_on_other_files(trained, tmp_path):
    options, _ = trained
    folder = write_pairs(tmp_path / "other", PAIRS[3:6], ("a", "b"))
    (folder / "links").write_text("0-0\n1-1 2-2\n5-3\n")
    files = ("--source", folder / "a", "--target", folder / "b")
    status, _, err = call("evaluate", "--run", options.out, *files, "--links", folder / "links", "--name", "other")
    assert status == 0, err
    found = json.loads((pathlib.Path(options.out) / "other.json").read_text())["inferences"][0]
    assert found["num_sentences"] == 3
    assert {"prior", "posterior", "exact", "posterior_f1_minus_prior_f1"} <= set(found["alignment"])
    for words, message in (
        (files[:2], "--source and --target belong together"),
        (("--links", folder / "links"), "--links: those of a run's own pairs"),
    ):
        status, _, err = call("evaluate", "--run", options.out, *words)
        assert status == 2
        assert message in err


def test_generate_is_what_the_export_gives(trained, tmp_path):
    """A process that imports only TensorFlow and tensorflow-text translates the same lines, byte for byte."""
    options, _ = trained
    lines = tmp_path / "lines.txt"
    lines.write_text("".join(f"{line}\n" for line in SENTENCES), encoding="utf-8")
    status, out, err = call("generate", "--run", options.out, "--input", lines)
    assert status == 0, err
    status, _, err = call("export", "--run", options.out, "--out", tmp_path / "served")
    assert status == 0, err
    program = (
        "import sys, tensorflow as tf, tensorflow_text\n"
        "model = tf.saved_model.load(sys.argv[1])\n"
        "lines = open(sys.argv[2], encoding='utf-8').read().split('\\n')[:-1]\n"
        "for text in model.generate(tf.constant(lines)).numpy(): sys.stdout.buffer.write(text + b'\\n')\n"
        "found = model.n_best(tf.constant(lines))\n"
        "assert found['texts'].shape == found['scores'].shape == (3, 3)\n"
        "assert (model.score(tf.constant(lines), tf.constant(lines))['log_likelihood'].numpy() < 0).all()\n"
        "assert not any(name.startswith(('keras_vattn', 'applications')) for name in sys.modules)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "served"), str(lines)], capture_output=True, cwd=tmp_path
    )
    assert result.returncode == 0, result.stderr.decode()[-2000:]
    assert result.stdout.decode() == out
    assert len(out.splitlines()) == len(SENTENCES)


def test_resume_repeats_the_uninterrupted_run(tmp_path, monkeypatch):
    """Stopped after the first epoch and resumed: the same history and weights."""
    whole = small_options(tmp_path, row="marginal", epochs=2, out=str(tmp_path / "whole"), export=False)
    parts = dataclasses.replace(whole, out=str(tmp_path / "parts"))
    monkeypatch.setattr(training, "evaluate_split", lambda *arguments: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        training.train(whole)
    with pytest.raises(KeyboardInterrupt):
        training.train(dataclasses.replace(parts, epochs=1))
    with pytest.raises(KeyboardInterrupt):
        training.train(dataclasses.replace(parts, resume=True))
    for one, other in zip(
        *(read_weights(tmp_path / name / "weights/last.npz") for name in ("whole", "parts")), strict=True
    ):
        np.testing.assert_array_equal(one, other)


def test_a_run_starts_from_another(trained, tmp_path, monkeypatch):
    """The shared weights are those of the other run, and its segmentation is taken over."""
    options, _ = trained
    started = dataclasses.replace(
        options, row="variational_sample", init_from=options.out, out=str(tmp_path / "started"), export=False
    )
    seen = {}

    def look(options, folder, models, encoded):
        seen.update({weight.path: weight.numpy() for weight in models.training.trainable_weights})
        raise KeyboardInterrupt

    monkeypatch.setattr(training, "_fit", look)
    with pytest.raises(KeyboardInterrupt):
        training.train(started)
    _, _, _, models = load_run(options.out)
    for weight in models.training.trainable_weights:
        np.testing.assert_array_equal(seen[weight.path], weight.numpy())
    # A run that was killed before its first checkpoint starts from the same weights.
    seen.clear()
    with pytest.raises(KeyboardInterrupt):
        training.train(dataclasses.replace(started, resume=True))
    for weight in models.training.trainable_weights:
        np.testing.assert_array_equal(seen[weight.path], weight.numpy())
    with pytest.raises(InputError, match=r"--init-from: .* is another model: units differ"):
        training.train(dataclasses.replace(started, units=12, out=str(tmp_path / "other")))
    assert not (tmp_path / "other").exists()


def test_the_learning_rate_is_halved():
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(1.0), "mse")
    callback = HalveOnPlateau(patience=1, rows=[{"val_loss": 3.0}])
    callback.set_model(model)
    rates = []
    for epoch, value in enumerate([2.0, 2.5, 2.4, 2.3, 1.0, 1.5]):
        logs = {"val_loss": value}
        callback.on_epoch_end(epoch, logs)
        rates.append(logs["learning_rate"])
    assert rates == [1.0, 1.0, 0.5, 0.25, 0.25, 0.25]


@pytest.mark.parametrize("segmentation", ["bpe", "characters", "segmented"])
def test_segmentations(tmp_path, segmentation):
    """Text goes through each of them unchanged, and comes back after saving."""
    options = small_options(tmp_path, segmentation=segmentation, max_length=40)
    splits = load_splits(options)
    codec = Codec.fit(options, splits.train)
    encoded = EncodedPairs.encode(options, codec, splits.valid)
    decoded = [text.decode() for text in codec.target.decode(np.array([encoded.targets[0]])).numpy()]
    assert decoded == [splits.valid.targets[0]]

    class Folder:
        path = tmp_path

        @staticmethod
        def file(name):
            return tmp_path / name

    codec.save(Folder)
    loaded = Codec.load(Folder, options)
    again = EncodedPairs.encode(options, loaded, splits.valid)
    assert all((one == other).all() for one, other in zip(encoded.sources, again.sources, strict=True))


def test_normal_forms(tmp_path):
    for normalization, text in (("NFKC", "fi 2"), ("NFC", "ﬁ ²"), (None, "ﬁ ²")):
        options = small_options(tmp_path, segmentation="words", normalization=normalization)
        codec = Codec.fit(options, load_splits(options).train)
        assert normalized(codec, ["ﬁ ²"]) == [text]


def test_references_are_what_a_model_could_write(tmp_path):
    """Lower case and joined segments, but no unknown word in the place of one that the model does not know."""
    options = small_options(tmp_path, segmentation="segmented")
    codec = Codec.fit(options, load_splits(options).train)
    assert normalized(codec, ["The  Ca@@ t", "the zebra"]) == ["the cat", "the zebra"]


def test_files_and_long_sentences(tmp_path):
    """Names of published data, plain or compressed; pairs beyond the limit are left out of training, cut elsewhere."""
    folder = write_pairs(tmp_path / "data", PAIRS[:20], ("train.de", "train.en"))
    write_pairs(folder, [*PAIRS[20:24], ("wort " * 30, "word " * 30)], ("val.de", "val.en"))
    for name in ("train.de", "train.en"):
        with gzip.open(folder / f"{name}.gz", "wb") as file:
            file.write((folder / name).read_bytes())
        (folder / name).unlink()
    options = Options(**SMALL, data=str(folder), data_source="de", data_target="en")
    splits = load_splits(options)
    assert (len(splits.train), len(splits.valid), splits.test) == (20, 5, None)
    codec = Codec.fit(options, splits.train)
    cut = EncodedPairs.encode(options, codec, splits.valid)
    assert (cut.report["too_long"], cut.report["source_num_truncated"]) == (0, 1)
    dropped = EncodedPairs.encode(options, codec, splits.valid, drop_long=True)
    assert (dropped.report["pairs"], dropped.report["too_long"], dropped.rows) == (4, 1, [0, 1, 2, 3])


def test_a_pair_of_which_segmentation_leaves_nothing(tmp_path):
    """A control character is text until it is normalised: such training pairs are named, or counted."""
    folder = write_pairs(tmp_path / "data", [*PAIRS[:5], ("\x07", "nothing"), *PAIRS[5:]])
    options = Options(**{**SMALL, "segmentation": "bpe", "max_length": 100}, data=str(folder))
    pairs = read_parallel(folder / "train.src", folder / "train.tgt")
    codec = Codec.fit(options, pairs)
    with pytest.raises(InputError, match=r"training pair 6: nothing is left of a side once it is segmented"):
        EncodedPairs.encode(options, codec, pairs, drop_long=True)
    report = EncodedPairs.encode(dataclasses.replace(options, skip_invalid=True), codec, pairs, drop_long=True).report
    assert (report["pairs"], report["empty"], report["too_long"]) == (len(PAIRS), 1, 0)


def test_gold_links_of_files(tmp_path):
    """A line a pair; a link out of range is named, or counted where such lines are skipped."""
    folder = write_pairs(tmp_path / "data", PAIRS[:20])
    write_pairs(folder, PAIRS[20:22], ("test.src", "test.tgt"))
    links = tmp_path / "links.txt"
    options = Options(**SMALL, data=str(folder), test_links=str(links))
    links.write_text("0-0 1-1 4p3\n2-2\n")
    found = load_splits(options).links["test"]
    assert (found[0].sure, found[0].possible) == ({(0, 0), (1, 1)}, {(0, 0), (1, 1), (4, 3)})
    links.write_text("0-0\n0-0 9-1\n")
    with pytest.raises(InputError, match=r"links.txt:2: the link 9-1 is out of range"):
        load_splits(options)
    assert load_splits(dataclasses.replace(options, skip_invalid=True)).links["test"][1].sure == {(0, 0)}
    links.write_text("0-0\n")
    with pytest.raises(InputError, match=r"links.txt"):
        load_splits(options)
    with pytest.raises(InputError, match="--valid-links is given without valid files"):
        load_splits(Options(valid_links=str(links)))
    with pytest.raises(InputError, match="--valid-links is given without valid files"):
        load_splits(dataclasses.replace(options, valid_links=str(links), test_links=None))
    links.write_text("0p0\n0p1\n")
    with pytest.raises(InputError, match=r"links.txt: there is no sure link"):
        load_splits(options)
    with pytest.raises(InputError, match="--test-source is given without training pairs"):
        load_splits(Options(test_source="a", test_target="b"))


def test_links_of_segmented_text_are_between_words(tmp_path):
    """Two segments are one word, in the range of the links and in the alignment of the pieces."""
    pairs = [("un@@ likely dog", "ein un@@ wahr@@ scheinlicher hund")]
    folder = write_pairs(tmp_path / "data", pairs * 10)
    for part in ("valid", "test"):
        write_pairs(folder, pairs, (f"{part}.src", f"{part}.tgt"))
    (tmp_path / "links").write_text("0-1 1-2\n")
    options = Options(**{**SMALL, "segmentation": "segmented"}, data=str(folder), test_links=str(tmp_path / "links"))
    splits = load_splits(options)
    codec = Codec.fit(options, splits.train)
    encoded = EncodedPairs.encode(options, codec, splits.test)
    posterior = [(link[1], link[0], 1.0) for link in sorted(splits.links["test"][0].sure)]
    found = of_pieces(codec, posterior, encoded.sources[0], encoded.targets[0])
    assert sorted((int(row), int(place), float(share)) for row, place, share in found) == [
        *((row, place, 0.5) for row in (1, 2, 3) for place in (0, 1)),
        (4, 2, 1.0),
    ]
    (tmp_path / "links").write_text("2-1\n")
    with pytest.raises(InputError, match="out of range"):
        load_splits(options)


def test_a_source_without_a_word(trained):
    """It is translated from nothing, and has a probability."""
    options, _ = trained
    _, run_options, codec, models = load_run(options.out)
    translator = Translator(models, codec, run_options)
    log_likelihood = translator.score(["", "der hund"], ["the dog", "the dog"])["log_likelihood"].numpy()
    assert (log_likelihood > -200).all()


def test_a_comparison_reads_what_was_asked_for(trained, tmp_path):
    """A run that decoded otherwise is evaluated again, and is not reported as it was."""
    options, _ = trained
    comparison = Comparison("applications.nmt", tmp_path, 1, training.MAY_DIFFER)
    assert comparison.is_finished(options)
    assert comparison.is_finished(dataclasses.replace(options, export=False))
    for changes in ({"num_beams": 5}, {"length_penalty": 0.0}, {"epochs": 3}):
        other = dataclasses.replace(options, **changes)
        comparison.check(other)
        assert not comparison.is_finished(other)
    with pytest.raises(InputError, match="holds a run with other options"):
        comparison.check(dataclasses.replace(options, units=11))


def test_compare(tmp_path, monkeypatch):
    """Rows, one started from another, crossed with inferences: every table, and the pictures."""

    def in_this_process(self, name, arguments):
        return None if call(*arguments)[0] == 0 else name

    monkeypatch.setattr(Comparison, "run", in_this_process)
    given = {name: value for name, value in SMALL.items() if name != "epochs"}
    write_pairs(tmp_path / "data")
    values = {**given, "data": str(tmp_path / "data"), "epochs": 2}
    (tmp_path / "options.yaml").write_text(yaml.safe_dump(values))
    rows = ("soft", "variational_sample@soft")
    words = ["--out", tmp_path / "out", "--options", tmp_path / "options.yaml", "--seeds", 1, "--split", "valid"]
    words += ["--rows", *rows, "--inference", "exact", "kmax:2", "soft", "--k-curve", 2]
    status, out, err = call("compare", *words)
    assert status == 0, err
    table = (tmp_path / "out/table.md").read_text()
    assert table in out
    assert table.startswith("one seed, no claim; ")
    for line in (
        "Table 1 of Deng et al. 2018",
        "| Variational Attention, from Soft Attention | E_q[log p] - KL | Sample | ",
        "Table 2 of Deng et al. 2018, left",
        "| model | PPL, exact | PPL, K-max 2 | BLEU, exact | BLEU, K-max 2 |",
        "| Soft Attention | plain | ",
        "Table 3 of Deng et al. 2018, right",
        "Table 4 of Fan et al. 2020",
        "Table 8 of Fan et al. 2020",
        "| variational_sample@soft | kmax:2 | K-max 2 | ",
        "Paired bootstrap over sentences against soft, 1000 resamples",
    ):
        assert line in table, line
    for name in ("alignments.png", "curves.png"):
        assert (tmp_path / "out" / name).stat().st_size > 5000
    crossed = tmp_path / "out/soft_seed_0/crossing_kmax_2_hypotheses.txt"
    assert (
        len(crossed.read_text().splitlines())
        == json.loads((tmp_path / "out/soft_seed_0/metrics.json").read_text())["report"]["num_sentences"]
    )
    # What has been trained is read.
    monkeypatch.setattr(Comparison, "run", lambda self, name, arguments: name if arguments[0] == "train" else None)
    status, again, err = call("compare", *words)
    assert status == 0, err
    assert again == out


def test_draws_of_continuous_alignments():
    assert Inference.parse("sample:3", "bam_weibull").draws_weights("bam_weibull")
    assert not Inference.parse("sample:3", "marginal").draws_weights("marginal")
    with pytest.raises(InputError, match="the alignments of relaxed are continuous"):
        Inference.parse("kmax:3", "relaxed")


def test_the_embedded_pairs_have_gold_alignments():
    options = Options(max_train_pairs=100, max_test_pairs=50)
    splits = load_splits(options)
    assert (len(splits.train), len(splits.valid), len(splits.test)) == (100, 800, 50)
    for part in ("train", "valid", "test"):
        pairs = getattr(splits, part)
        assert len(splits.links[part]) == len(pairs)
        for source, target, links in zip(pairs.sources, pairs.targets, splits.links[part], strict=True):
            assert max(i for i, _ in links.possible) < len(source.split())
            assert max(j for _, j in links.possible) < len(target.split())
    shuffled = load_splits(dataclasses.replace(options, shuffle_sources=True))
    assert sorted(shuffled.train.sources) == sorted(splits.train.sources)
    assert shuffled.train.sources != splits.train.sources
    assert shuffled.train.targets == splits.train.targets


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"row": "hardest"}, "--row: expected one of soft, .*Received: hardest"),
        ({"segmentation": "morphemes"}, "--segmentation: expected one of bpe, "),
        ({"dropout": 1.0}, r"--dropout: must be in \[0, 1\)"),
        ({"num_beams": 0}, "--num-beams: must be positive. Received: 0"),
        ({"learning_rate": float("nan")}, "--learning-rate: must be finite"),
        ({"length_penalty": -1.0}, "--length-penalty: must be at least 0"),
        ({"baseline": "mean"}, "--baseline: expected one of soft, moving_average, none"),
        ({"relaxed": "beta"}, "--relaxed: expected one of dirichlet, "),
    ],
)
def test_options_out_of_range(changes, message):
    with pytest.raises(InputError, match=message):
        validate(dataclasses.replace(Options(), **changes))


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "train.tgt",
            "one line\n",
            r"train.src has 36 lines and .*train.tgt has 1: .*; line 2 of .*train.src has none",
        ),
        ("train.src", "", "train.src: the file is empty"),
        ("train.tgt", "x\n\n" + "y\n" * 34, "train.tgt:2: an empty sentence"),
    ],
)
def test_bad_files_stop_before_any_work(tmp_path, name, text, message):
    options = small_options(tmp_path)
    (tmp_path / "data" / name).write_text(text, encoding="utf-8")
    status, _, err = call(*arguments_of(options))
    assert status == 2
    assert re.search(message, err)
    assert not (tmp_path / "run").exists()


def test_bad_words_on_the_command_line(trained, tmp_path):
    options, _ = trained
    for arguments, message in (
        (("evaluate", "--run", tmp_path), "is not the folder of a run"),
        (("evaluate", "--run", options.out, "--inference", "kmax"), "--inference: expected exact, kmax:K"),
        (("evaluate", "--run", options.out, "--split", "train"), "--split: expected valid or test"),
        (("evaluate", "--run", options.out, "--split", "test"), "this run has no test pairs"),
        (("generate", "--run", options.out, "--num-beams", 0), "--num-beams: must be positive"),
        (("generate", "--run", options.out, "--input", tmp_path / "no"), "no such file"),
        (("export", "--run", options.out, "--inference", "sample:3"), "an export has no draws"),
        (("train", "--out", options.out), "holds a run"),
        (("compare", "--rows", "softer"), "--row: expected one of"),
        (("compare", "--inference", "most"), "--inference: expected exact"),
    ):
        status, _, err = call(*arguments)
        assert status == 2, arguments
        assert message in err


def test_weights_of_another_model(trained, tmp_path):
    options, _ = trained
    shutil.copytree(options.out, tmp_path / "run")
    config = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    (tmp_path / "run" / "config.yaml").write_text(yaml.safe_dump({**config, "units": 11}))
    status, _, err = call("generate", "--run", tmp_path / "run", "--input", __file__)
    assert status == 2
    assert "does not fit the model" in err


def linked(pairs):
    """The gold links of the tiny language: word for word, but for the verb, which comes last in the source."""
    return ["0-0 1-1 2-2 5-3 3-4 4-5" for _ in pairs]


def test_alignments_from_a_file(tmp_path):
    """They take the place of the inference network: q is what the file says, shared out over pieces and smoothed."""
    folder = write_pairs(tmp_path / "data", PAIRS[:30])
    write_pairs(folder, PAIRS[30:], ("valid.src", "valid.tgt"))
    (tmp_path / "train.links").write_text("".join(f"{line}\n" for line in linked(PAIRS[:30])))
    matrix = np.zeros((6, 6))
    for link in linked([0])[0].split():
        source, target = map(int, link.split("-"))
        matrix[target, source] = 1.0
    (tmp_path / "valid.jsonl").write_text(f"{json.dumps(matrix.tolist())}\n" * len(PAIRS[30:]))
    options = Options(
        **SMALL,
        data=str(folder),
        row="variational_enum",
        out=str(tmp_path / "run"),
        posterior_file=str(tmp_path / "train.links"),
        valid_posterior_file=str(tmp_path / "valid.jsonl"),
        posterior_smoothing=0.3,
        export=False,
    )
    splits = load_splits(options)
    codec = Codec.fit(options, splits.train)
    for part in ("train", "valid"):
        encoded = EncodedPairs.encode(options, codec, getattr(splits, part), posteriors=splits.posteriors[part])
        inputs, target = next(iter(encoded.batches(options)))
        posterior = np.exp(inputs["posterior_logits"])
        assert posterior.shape == (*target.shape[:2], inputs["source"].shape[1])
        np.testing.assert_allclose(posterior.sum(-1), 1.0, rtol=1e-5)
        np.testing.assert_allclose(posterior[0, :6], 0.7 * matrix + 0.3 / 6, rtol=1e-4)
        # The end of the sentence is aligned to nothing in particular.
        np.testing.assert_allclose(posterior[0, 6], 1 / 6, rtol=1e-4)
    training.train(options)
    record = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert record["parameters"]["inference"] == 0
    assert record["report"]["likelihood"]["elbo_perplexity"] >= record["report"]["likelihood"]["perplexity"]
    for changes, message in (
        ({"valid_posterior_file": None}, "belong together; one of them is missing"),
        ({"row": "soft"}, "--posterior-file: the row soft has no posterior"),
        ({"posterior_smoothing": 0.0}, r"--posterior-smoothing: must be in \(0, 1\]"),
    ):
        with pytest.raises(InputError, match=message):
            validate(dataclasses.replace(options, **changes))
    (tmp_path / "valid.jsonl").write_text("[[1.0]]\n" * len(PAIRS[30:]))
    with pytest.raises(InputError, match=r"valid.jsonl:1: expected 6 rows of 6. Received: \(1, 1\)"):
        load_splits(options)
    (tmp_path / "train.links").write_text("0-0\n" * 29)
    with pytest.raises(InputError, match=r"train.links"):
        load_splits(options)


def test_the_pieces_of_a_word_share_its_alignment():
    class Pieces:
        @staticmethod
        def pieces(ids):
            return ids

        @staticmethod
        def word_of_piece(pieces):
            return pieces

    class PieceCodec:
        source = target = Pieces

    # Source words 0 0 1, target words 0 1 1; word 1 of the target is half of source word 0, half of 1.
    found = of_pieces(PieceCodec, [(0, 1, 1.0), (1, 0, 0.5), (1, 1, 0.5)], [0, 0, 1], [0, 1, 1])
    weights = np.zeros((3, 3))
    for row, place, probability in found:
        weights[int(row), int(place)] += probability
    np.testing.assert_allclose(weights, [[0, 0, 1], [0.25, 0.25, 0.5], [0.25, 0.25, 0.5]])


def test_batches_by_tokens(tmp_path):
    options = small_options(tmp_path, batch_tokens=30)
    splits = load_splits(options)
    encoded = EncodedPairs.encode(options, Codec.fit(options, splits.train), splits.train)
    batches = list(encoded.batches(options, shuffle=True, num_epochs=1))
    assert len(batches) == encoded.num_batches(options)
    assert sum(len(target) for _, target in batches) == len(splits.train)
    assert all(target.shape[0] * target.shape[1] <= 30 for _, target in batches)
    assert max(len(target) for _, target in batches) > 2
