"""SavedModels with the encoders of subwords and of words in them."""

import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf


class Exported(tf.Module):
    def __init__(self, encoder):
        super().__init__()
        self.encoder = encoder

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
    def run(self, texts):
        ids = self.encoder.encode(texts, 6, add_end=True)
        return {"ids": ids, "text": self.encoder.decode(ids)}


def test_setting_the_seed_afterwards_changes_nothing(encoder):
    module, sentences = Exported(encoder), tf.constant(["the cat", "s@@ at ☃"])
    before, ids = module.run(sentences), encoder.encode(sentences)
    tf.random.set_seed(1)
    np.testing.assert_array_equal(encoder.encode(sentences), ids)
    tf.random.set_seed(1)
    np.testing.assert_array_equal(module.run(sentences)["ids"], before["ids"])


def test_a_saved_model_holds_a_sentencepiece_model_once(subword_encoder, tmp_path):
    module = Exported(subword_encoder)
    module.again = tf.function(lambda texts: subword_encoder.encode(texts), Exported.run.input_signature)
    tf.saved_model.save(module, tmp_path, signatures={"run": module.run, "again": module.again})
    assert (tmp_path / "saved_model.pb").read_bytes().count(subword_encoder.tokenizer.model) == 1


@pytest.mark.slow
def test_saved_models_need_tensorflow_text_only(subword_encoder, word_encoder, tmp_path):
    sentences = ["The  cat sat", "", "un@@ like@@ ly ☃", "São"]
    expected = {}
    for name, encoder in {"s": subword_encoder, "g": word_encoder}.items():
        module = Exported(encoder)
        tf.saved_model.save(module, tmp_path / name, signatures=module.run)
        out = module.run(tf.constant(sentences))
        expected[name] = (out["ids"].numpy().tolist(), out["text"].numpy().tolist())
    program = (
        "import ast, sys, tensorflow as tf, tensorflow_text\n"
        "sentences, expected = map(ast.literal_eval, sys.argv[1:])\n"
        "for name, (ids, text) in expected.items():\n"
        "    loaded = tf.saved_model.load(name)\n"
        "    tf.random.set_seed(1)\n"
        "    for function in (loaded.run, loaded.signatures['serving_default']):\n"
        "        out = function(tf.constant(sentences))\n"
        "        assert out['ids'].numpy().tolist() == ids, (name, out)\n"
        "        assert out['text'].numpy().tolist() == text, (name, out)\n"
        "assert not {'sentencepiece', 'keras_vattn', 'applications'} & set(sys.modules)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", program, repr(sentences), repr(expected)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
