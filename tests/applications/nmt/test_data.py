"""From files to batches: parallel text and its segmentation."""

import gzip

import numpy as np
import pytest
from application_cases import changed
from nmt_cases import APPLICATION, PAIRS, SMALL, small_options, write_pairs

from applications.nmt.data import AlignedText, Codec, encode, load_codec, read
from applications.nmt.options import EvaluateNmt, Options
from applications.nmt.report import normalized
from applications.text.readers import read_parallel


@pytest.mark.parametrize("segmentation", ["bpe", "words"])
def test_segmentations(tmp_path, segmentation):
    """Text goes through each of them unchanged, and comes back after saving."""
    options = small_options(tmp_path, segmentation=segmentation, max_length=40)
    parts = read(options)
    codec = Codec.fit(options, parts["train"])
    encoded = encode(options, codec, parts["valid"])
    decoded = [text.decode() for text in codec.target.decode(np.array([encoded.targets[0]])).numpy()]
    assert decoded == [parts["valid"].targets[0]]

    class Folder:
        path = tmp_path

        @staticmethod
        def file(name):
            return tmp_path / name

    codec.save(Folder)
    loaded = load_codec(options, Folder)
    again = encode(options, loaded, parts["valid"])
    assert all((one == other).all() for one, other in zip(encoded.sources, again.sources, strict=True))


def test_references_are_what_a_model_could_write(tmp_path):
    """Lower case, but no unknown word in the place of one that the model does not know."""
    options = small_options(tmp_path, segmentation="words")
    codec = Codec.fit(options, read(options)["train"])
    assert normalized(codec, ["The  Cat", "the zebra"]) == ["the cat", "the zebra"]


def test_files_and_long_sentences(tmp_path):
    """Names of published data, plain or compressed; pairs beyond the limit are left out of training, cut elsewhere."""
    folder = write_pairs(tmp_path / "data", PAIRS[:20], ("train.de", "train.en"))
    write_pairs(folder, [*PAIRS[20:24], ("wort " * 30, "word " * 30)], ("val.de", "val.en"))
    for name in ("train.de", "train.en"):
        with gzip.open(folder / f"{name}.gz", "wb") as file:
            file.write((folder / name).read_bytes())
        (folder / name).unlink()
    options = changed(Options(), **SMALL, data=str(folder), data_source="de", data_target="en")
    parts = read(options)
    assert {part: len(pairs) for part, pairs in parts.items()} == {"train": 20, "valid": 5}
    codec = Codec.fit(options, parts["train"])
    cut = encode(options, codec, parts["valid"])
    assert (cut.report["too_long"], cut.report["source_num_truncated"]) == (0, 1)
    dropped = encode(options, codec, parts["valid"], training=True)
    assert (dropped.report["pairs"], dropped.report["too_long"]) == (4, 1)
    assert dropped.pairs.sources == parts["valid"].sources[:4]


def test_a_pair_of_which_segmentation_leaves_nothing(tmp_path):
    """The mark of a space is text until it is normalised: such training pairs are left out and counted."""
    folder = write_pairs(tmp_path / "data", [*PAIRS[:5], ("\u2581", "nothing"), *PAIRS[5:]])
    options = changed(Options(), **{**SMALL, "segmentation": "bpe", "max_length": 100}, data=str(folder))
    pairs = AlignedText(**vars(read_parallel(folder / "train.src", folder / "train.tgt")))
    codec = Codec.fit(options, pairs)
    report = encode(options, codec, pairs, training=True).report
    assert (report["pairs"], report["empty"], report["too_long"]) == (len(PAIRS), 1, 0)


def test_other_pairs_of_evaluate(tmp_path):
    """A table has the columns of the run's own."""
    options = small_options(tmp_path)
    text = changed(options, source_column="de", target_column="en")
    table = tmp_path / "other.tsv"
    table.write_text("en\tde\n" + "".join(f"{target}\t{source}\n" for source, target in PAIRS[:3]))
    other = APPLICATION.read_other(text, EvaluateNmt("", table=str(table)))
    assert (other.sources, other.targets, other.links) == (*map(list, zip(*PAIRS[:3])), None)
    assert APPLICATION.read_other(text, EvaluateNmt("")) is None
