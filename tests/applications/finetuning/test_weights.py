"""Tests folders with pretrained weights from Hugging Face and KerasHub, and invalid folders."""

import json

import keras_hub
import numpy as np
import pytest
import scipy.special
from finetuning_cases import HUGGING_FACE, PIECES, tensors, write_hugging_face

from applications.common.errors import InputError
from applications.finetuning.weights import backbone_of, tokenizer_of

IDS = np.array([[2, 5, 6, 3, 0, 0], [2, 11, 12, 8, 9, 3]])
MASK = (np.arange(6) < np.array([4, 6])[:, None]).astype("int32")


def bert(tensors, ids, mask):
    """Compute the last hidden states of BERT (Devlin et al. 2019) in NumPy."""

    def normalized(x, name):
        deviation = np.sqrt(x.var(axis=-1, keepdims=True) + 1e-12)
        return (x - x.mean(axis=-1, keepdims=True)) / deviation * tensors[f"{name}.weight"] + tensors[f"{name}.bias"]

    def dense(x, name):
        return x @ tensors[f"{name}.weight"].T + tensors[f"{name}.bias"]

    x = tensors["embeddings.word_embeddings.weight"][ids] + tensors["embeddings.token_type_embeddings.weight"][0]
    x = normalized(x + tensors["embeddings.position_embeddings.weight"][: ids.shape[1]], "embeddings.LayerNorm")
    for layer in range(HUGGING_FACE["num_hidden_layers"]):
        prefix = f"encoder.layer.{layer}"
        query, key, value = (
            dense(x, f"{prefix}.attention.self.{name}").reshape(*ids.shape, 2, 4).transpose(0, 2, 1, 3)
            for name in ("query", "key", "value")
        )
        scores = query @ key.transpose(0, 1, 3, 2) / 2.0 + np.where(mask, 0.0, -1e9)[:, None, None]
        attended = (scipy.special.softmax(scores, axis=-1) @ value).transpose(0, 2, 1, 3).reshape(x.shape)
        x = normalized(x + dense(attended, f"{prefix}.attention.output.dense"), f"{prefix}.attention.output.LayerNorm")
        inner = dense(x, f"{prefix}.intermediate.dense")
        inner = inner * 0.5 * (1.0 + scipy.special.erf(inner / np.sqrt(2.0)))
        x = normalized(x + dense(inner, f"{prefix}.output.dense"), f"{prefix}.output.LayerNorm")
    return x


def test_a_folder_from_hugging_face(tmp_path):
    path = write_hugging_face(tmp_path / "bert")
    backbone, tokenizer = backbone_of(path, dropout=0.0), tokenizer_of(path)
    assert tokenizer.vocabulary_size() == len(PIECES)
    inputs = {"token_ids": IDS, "segment_ids": np.zeros_like(IDS), "padding_mask": MASK}
    outputs = backbone(inputs)["sequence_output"].numpy()
    expected = bert(tensors(), IDS, MASK.astype(bool))
    # The tolerance covers the tanh approximation of GELU in KerasHub.
    np.testing.assert_allclose(outputs[MASK > 0], expected[MASK > 0], atol=5e-3)


def test_a_preset_of_keras_hub(tmp_path):
    sizes = {"num_layers": 1, "num_heads": 2, "hidden_dim": 8, "intermediate_dim": 12, "max_sequence_length": 9}
    original = keras_hub.models.AlbertBackbone(len(PIECES), embedding_dim=4, dropout=0.1, **sizes)
    original.save_to_preset(str(tmp_path))
    loaded = backbone_of(tmp_path, dropout=0.0)
    assert loaded.dropout == 0.0
    for weight, original_weight in zip(loaded.get_weights(), original.get_weights(), strict=True):
        np.testing.assert_array_equal(weight, original_weight)
    random_backbone = backbone_of(tmp_path, load_weights=False)
    assert not np.array_equal(random_backbone.get_weights()[0], original.get_weights()[0])


@pytest.mark.parametrize(
    ("config", "changes", "message"),
    [
        ({"model_type": "gpt2"}, {}, "expected a BERT or ALBERT model. Received: gpt2"),
        ({"num_hidden_layers": 3}, {}, "encoder.layer.2.attention.self.query.weight"),
        ({"hidden_size": 16}, {}, "variable.shape=(15, 16), Received: value.shape=(15, 8)"),
        (
            {},
            {"encoder.layer.1.output.dense.weight": None},
            "encoder.layer.1.output.dense.weight",
        ),
        ({}, {"pooler.dense.bias": None}, "pooler.dense.bias"),
        ({}, {"embeddings.LayerNorm.weight": None}, "embeddings.LayerNorm."),
        ({"hidden_act": "relu"}, {}, "config.json: hidden_act: expected gelu. Received: relu"),
        (
            {},
            {"encoder.layer.0.intermediate.dense.weight": np.zeros((9, 8), "float32")},
            "variable.shape=(8, 12), Received: value.shape=(8, 9). Target variable: <Variable path=transformer",
        ),
    ],
)
def test_folders_of_another_architecture(tmp_path, config, changes, message):
    path = write_hugging_face(tmp_path / "bert", {**HUGGING_FACE, **config}, **changes)
    with pytest.raises(InputError) as error:
        backbone_of(path)
    assert message in str(error.value) and len(str(error.value)) < 400 and "\n" not in str(error.value)


def test_damaged_folders(tmp_path):
    path = write_hugging_face(tmp_path / "bert")
    (tmp_path / "bert" / "model.safetensors").write_bytes(b"12345678{")
    with pytest.raises(InputError, match=r"bert cannot be read: .*header"):
        backbone_of(path)
    write_hugging_face(tmp_path / "bert")
    content = (tmp_path / "bert" / "model.safetensors").read_bytes()
    (tmp_path / "bert" / "model.safetensors").write_bytes(content[:-40])
    with pytest.raises(InputError, match=r"bert cannot be read: .*[Ii]ncomplete"):
        backbone_of(path)
    write_hugging_face(tmp_path / "bert")
    config = tmp_path / "bert" / "config.json"
    config.write_text(json.dumps({name: x for name, x in HUGGING_FACE.items() if name != "hidden_size"}))
    with pytest.raises(InputError, match="'hidden_size'"):
        backbone_of(path)
    config.write_text("{")
    with pytest.raises(InputError, match=r"config\.json cannot be read"):
        tokenizer_of(path)
    for name in ("GPT2Backbone", "DistilBertBackbone"):
        config.write_text(json.dumps({"registered_name": f"keras_hub>{name}", "config": {}}))
        with pytest.raises(InputError, match=rf"expected a BERT or ALBERT model\. Received: keras_hub>{name}"):
            tokenizer_of(path)
