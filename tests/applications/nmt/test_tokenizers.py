"""The normalisation of sentences."""

import pytest
import tensorflow as tf
from subword_cases import strings

from applications.nmt import tokenizers


@pytest.mark.parametrize(
    ("sentence", "options", "expected"),
    [
        ("  Ａ\u00a0\u3000ﬁsh\t™ ", {"normalization": "NFKC"}, "a fish tm"),
        ("Ａ ﬁsh e\u0301 ™", {"normalization": "NFC"}, "ａ ﬁsh é ™"),
        ("É e\u0301", {"normalization": None, "lowercase": False}, "É e\u0301"),
        ("İ K ΑΣ Ⓐ ｶﾞ", {"normalization": "NFKC"}, "i̇ k ας a ガ"),
        ("a´b\x00\r\nc", {"normalization": "NFKC"}, "a \u0301b c"),
        ("-LRB- ''", {}, "-lrb- ''"),
        ("", {}, ""),
        ("\n", {}, ""),
    ],
)
def test_normalization(sentence, options, expected):
    tokenizer = tokenizers.SegmentTokenizer(**options)
    once = tokenizer.normalize([sentence])
    assert strings(once) == [expected]
    assert strings(tokenizer.normalize(once)) == [expected]


def test_normalization_replaces_bytes_that_are_not_utf8_and_refuses_other_forms():
    assert strings(tokenizers.SegmentTokenizer().normalize(tf.constant([b"a\xff b"]))) == ["a\ufffd b"]
    with pytest.raises(ValueError, match="Received: 'NFX'"):
        tokenizers.CharacterTokenizer(normalization="NFX")
