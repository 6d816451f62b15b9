import numpy as np
import pytest
from application_cases import changed
from ved_cases import APPLICATION, PAIRS, small_options, write_table

from applications.common.application import Run
from applications.common.errors import InputError
from applications.ved.data import Codec, read
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


@pytest.mark.parametrize("autoencoder", [False, True])
def test_the_embedded_set_has_three_splits(autoencoder):
    parts = list(read(changed(Options(), autoencoder=autoencoder)).values())
    assert len(parts) == 3
    assert disjoint(*(set(part.sources) for part in parts))
    share = np.array([len(part) for part in parts]) / sum(map(len, parts))
    np.testing.assert_allclose(share, [0.81, 0.09, 0.1], atol=0.01)
    if autoencoder:
        assert all(part.sources == part.targets for part in parts)


def test_an_autoencoder_shares_no_sentence_between_train_and_valid(tmp_path):
    rows = [*PAIRS, *((f"{source} indeed", target) for source, target in PAIRS[::3])]
    table = write_table(tmp_path / "shared.tsv", rows)
    parts = read(small_options(tmp_path, autoencoder=True, train_table=str(table)))
    assert disjoint(set(parts["train"].sources), set(parts["valid"].sources))


def test_max_train_pairs_selects_complete_groups(tmp_path):
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


def test_references_are_grouped_by_source(tmp_path):
    options = small_options(tmp_path)
    parts = read(options)
    codec = Codec.fit(options, parts["train"])
    part = APPLICATION.encode(options, codec, parts["train"])
    ids, sources, references = decoded_sources(Run(None, options, {}, codec, None), part, 3)
    assert [len(row) for row in ids] == [len(source.split()) for source in sources]
    assert len(sources) == len(references) == 3 == len(set(sources))
    for source, answers in zip(sources, references):
        assert answers == [target for other, target in PAIRS if other == source]
