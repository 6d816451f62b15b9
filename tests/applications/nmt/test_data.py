"""Tests the reading of parallel text, segmentation and gold links."""

import gzip

import numpy as np
import pytest
from application_cases import changed
from nmt_cases import APPLICATION, PAIRS, SMALL, small_options, write_pairs

from applications.common.errors import InputError
from applications.nmt.data import AlignedText, Codec, encode, load_codec, read
from applications.nmt.options import EvaluateNmt, Options
from applications.nmt.report import normalized
from applications.text.readers import read_parallel


@pytest.mark.parametrize("segmentation", ["bpe", "words"])
def test_segmentations(tmp_path, segmentation):
    """Text survives encoding and decoding. A saved segmentation gives the same ids."""
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
    encoded_again = encode(options, loaded, parts["valid"])
    assert all((before == after).all() for before, after in zip(encoded.sources, encoded_again.sources, strict=True))


def test_references_are_normalized(tmp_path):
    """References are lower-cased, but words outside the vocabulary are not replaced."""
    options = small_options(tmp_path, segmentation="words")
    codec = Codec.fit(options, read(options)["train"])
    assert normalized(codec, ["The  Cat", "the zebra"]) == ["the cat", "the zebra"]


def test_files_and_long_sentences(tmp_path):
    """Published file names are accepted, plain or compressed. Long pairs are dropped in training, else truncated."""
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


def test_a_pair_with_an_empty_side_after_segmentation(tmp_path):
    """Segmentation empties a side that consists of a space mark. Such training pairs raise an error or are counted."""
    folder = write_pairs(tmp_path / "data", [*PAIRS[:5], ("\u2581", "nothing"), *PAIRS[5:]])
    options = changed(Options(), **{**SMALL, "segmentation": "bpe", "max_length": 100}, data=str(folder))
    pairs = AlignedText(**vars(read_parallel(folder / "train.src", folder / "train.tgt")))
    codec = Codec.fit(options, pairs)
    with pytest.raises(InputError, match=r"pair 6 of the training split: the source or target is empty"):
        encode(options, codec, pairs, training=True)
    report = encode(changed(options, skip_invalid=True), codec, pairs, training=True).report
    assert (report["pairs"], report["empty"], report["too_long"]) == (len(PAIRS), 1, 0)


def test_gold_links_of_files(tmp_path):
    """Each line lists the links of one pair. Links without a file of pairs and out-of-range links raise an error."""
    folder = write_pairs(tmp_path / "data", PAIRS[:20])
    write_pairs(folder, PAIRS[20:22], ("test.src", "test.tgt"))
    links = tmp_path / "links.txt"
    options = changed(Options(), **SMALL, data=str(folder), test_links=str(links))
    links.write_text("0-0 1-1 4p3\n2-2\n")
    first = read(options)["test"].links[0]
    assert (first.sure, first.possible) == ({(0, 0), (1, 1)}, {(0, 0), (1, 1), (4, 3)})
    links.write_text("0-0\n0-0 9-1\n")
    with pytest.raises(InputError, match=r"links.txt:2: the link 9-1 is out of range"):
        read(options)
    with pytest.raises(InputError, match="--valid-links requires valid files; pass --valid-source or --valid-table"):
        read(changed(Options(), valid_links=str(links)))


def test_other_pairs_of_evaluate(tmp_path):
    """`evaluate --table` uses the column names of the run, and reads links only from the file of `--links`."""
    options = small_options(tmp_path)
    text = changed(options, source_column="de", target_column="en")
    table = tmp_path / "other.tsv"
    table.write_text("en\tde\n" + "".join(f"{target}\t{source}\n" for source, target in PAIRS[:3]))
    (tmp_path / "links").write_text("0-0\n1p1\n0-0 5-2\n")
    other = APPLICATION.read_other(text, EvaluateNmt("", table=str(table)))
    assert (other.sources, other.targets, other.links) == (*map(list, zip(*PAIRS[:3])), None)
    other = APPLICATION.read_other(text, EvaluateNmt("", table=str(table), links=str(tmp_path / "links")))
    assert [entry.sure for entry in other.links] == [{(0, 0)}, set(), {(0, 0), (5, 2)}]
    assert APPLICATION.read_other(text, EvaluateNmt("")) is None
