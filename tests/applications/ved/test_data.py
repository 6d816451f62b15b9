import dataclasses

import numpy as np
import pytest
from application_cases import changed
from ved_cases import APPLICATION, PAIRS, PLACES, small_options, write_table

from applications.common.application import Run
from applications.common.errors import InputError
from applications.text.text import UNKNOWN
from applications.ved.data import Codec, load_codec, read
from applications.ved.options import Options
from applications.ved.report import decoded_sources


def pairs_of(text):
    return list(zip(text.sources, text.targets))


def disjoint(*parts):
    return sum(map(len, parts)) == len(set().union(*parts))


def test_validation_is_cut_by_source_sentence(tmp_path):
    parts = read(small_options(tmp_path))
    assert "test" not in parts
    assert disjoint(set(parts["train"].sources), set(parts["valid"].sources))
    assert sorted(pairs_of(parts["train"]) + pairs_of(parts["valid"])) == sorted(PAIRS)
    assert 8 <= len(parts["valid"]) <= 0.2 * len(PAIRS)


def test_validation_is_cut_by_group_column(tmp_path):
    rows = [(source, target, PLACES[index // 8]) for index, (source, target) in enumerate(PAIRS)]
    table = write_table(tmp_path / "grouped.tsv", rows, ("source", "target", "place"))
    parts = read(small_options(tmp_path, train_table=str(table), group_column="place"))
    places = [{source.split()[1] for source in part.sources} for part in parts.values()]
    assert disjoint(*places) and len(places[1]) == 1


@pytest.mark.parametrize("autoencoder", [False, True])
def test_the_embedded_set_is_cut_in_three(autoencoder):
    parts = list(read(changed(Options(), autoencoder=autoencoder)).values())
    assert len(parts) == 3
    assert disjoint(*(set(part.sources) for part in parts))
    share = np.array([len(part) for part in parts]) / sum(map(len, parts))
    np.testing.assert_allclose(share, [0.81, 0.09, 0.1], atol=0.01)
    if autoencoder:
        assert all(part.sources == part.targets for part in parts)


def test_no_sentence_of_an_autoencoder_is_in_both(tmp_path):
    rows = [*PAIRS, *((f"{source} indeed", target) for source, target in PAIRS[::3])]
    table = write_table(tmp_path / "shared.tsv", rows)
    parts = read(small_options(tmp_path, autoencoder=True, train_table=str(table)))
    assert disjoint(set(parts["train"].sources), set(parts["valid"].sources))


def test_the_pairs_given_as_files_are_used_as_they_are(tmp_path):
    for name, column in (("source", 0), ("target", 1)):
        (tmp_path / f"valid.{name}").write_text("".join(f"{pair[column]}\n" for pair in PAIRS[:5]), encoding="utf-8")
    given = {"valid_source": str(tmp_path / "valid.source"), "valid_target": str(tmp_path / "valid.target")}
    parts = read(small_options(tmp_path, **given, test_table=str(write_table(tmp_path / "test.tsv", PAIRS[5:9]))))
    assert [pairs_of(parts[name]) for name in ("train", "valid", "test")] == [PAIRS, PAIRS[:5], PAIRS[5:9]]


def test_fewer_training_pairs_are_whole_groups(tmp_path):
    options = small_options(tmp_path, max_train_pairs=12, max_valid_pairs=4)
    parts = read(options)
    assert len(parts["train"]) == 12 and len(parts["valid"]) == 4
    assert len(set(parts["train"].sources)) == 6
    assert disjoint(set(parts["train"].sources), set(parts["valid"].sources))


def test_invalid_rows_are_counted_when_they_may_be_skipped(tmp_path):
    table = tmp_path / "invalid.tsv"
    lines = [f"{source}\t{target}".encode() for source, target in PAIRS]
    table.write_bytes(b"\n".join([b"source\ttarget", *lines, b"only a source\t", b"\xff\tquestion", b"one field"]))
    options = small_options(tmp_path, train_table=str(table), skip_invalid=True)
    parts = read(options)
    codec = Codec.fit(options, parts["train"])
    assert APPLICATION.encode(options, codec, parts["train"]).report["skipped"] == 3
    assert APPLICATION.encode(options, codec, parts["valid"]).report["skipped"] == 0
    fewer = read(changed(options, max_train_pairs=8))
    assert fewer["train"].skipped == 3
    with pytest.raises(InputError, match=r"invalid.tsv:\d+: .*--skip-invalid"):
        read(changed(options, skip_invalid=False))


def test_truncated_and_unknown_are_counted(tmp_path):
    options = small_options(tmp_path, max_source_length=6, max_target_length=5)
    codec = Codec.fit(options, read(options)["train"])
    text = read(options)["train"]
    text = dataclasses.replace(
        text,
        sources=["in kenya the tea is big", "in peru the first day is big", "zzz qqq"],
        targets=["which tea has kenya ?", "what is the tea of kenya ?", "money"],
        groups=None,
    )
    encoded = APPLICATION.encode(options, codec, text)
    assert encoded.report == {
        "pairs": 3,
        "skipped": 0,
        "source_num_truncated": 1,
        "source_num_unknown": 2,
        "source_num_tokens": 14,
        "target_num_truncated": 1,
        "target_num_unknown": 0,
        "target_num_tokens": 11,
    }
    assert encoded.sources[2].tolist() == [UNKNOWN, UNKNOWN]
    assert [len(row) for row in encoded.sources] == [6, 6, 2]


def test_saved_vocabularies_encode_the_same(tmp_path):
    class Folder:
        path = tmp_path

        def file(self, name):
            return tmp_path / name

    options = small_options(tmp_path)
    codec = Codec.fit(options, read(options)["train"])
    codec.save(Folder())
    loaded = load_codec(options, Folder())
    sentences = [source for source, _ in PAIRS]
    np.testing.assert_array_equal(loaded.source.encode(sentences), codec.source.encode(sentences))
    assert loaded.target.vocabulary.tokens == codec.target.vocabulary.tokens


def test_references_of_a_source_are_gathered(tmp_path):
    options = small_options(tmp_path)
    parts = read(options)
    codec = Codec.fit(options, parts["train"])
    part = APPLICATION.encode(options, codec, parts["train"])
    ids, sources, references = decoded_sources(Run(None, options, {}, codec, None), part, 3)
    assert [len(row) for row in ids] == [len(source.split()) for source in sources]
    assert len(sources) == len(references) == 3 == len(set(sources))
    for source, answers in zip(sources, references):
        assert answers == [target for other, target in PAIRS if other == source]
