"""Load pretrained BERT and ALBERT models from KerasHub presets, and BERT also from Hugging Face folders."""

import json
import pathlib

import safetensors

from applications.common.errors import InputError

ARCHITECTURES = ("bert", "albert")
# KerasHub ignores these settings, so other values must be rejected.
_SUPPORTED = {"hidden_act": ("gelu", "gelu_new", "gelu_pytorch_tanh"), "position_embedding_type": ("absolute",)}


def tokenizer_of(path):
    """Load the tokenizer in a folder."""
    import keras_hub

    return _read(path, keras_hub.models.Tokenizer.from_preset)


def backbone_of(path, **options):
    """Load the transformer in a folder; `options` override its config.

    With `load_weights=False`, the weights are random. If tensors are missing or have wrong shapes, raise `InputError`.
    """
    import keras_hub

    return _read(path, keras_hub.models.Backbone.from_preset, name="backbone", **options)


def _read(path, from_preset, **options):
    _check(path)
    try:
        return from_preset(str(path), **options)
    except ImportError as error:
        raise InputError(f'--weights: {path} needs a package: pip install "keras_vattn[apps]" ({error})') from error
    except (OSError, KeyError, ValueError, TypeError, safetensors.SafetensorError) as error:
        # Keras's messages have several lines, and end with all values of a variable.
        reason = " ".join(str(error).partition(", value=")[0].split())
        raise InputError(f"--weights: {path} cannot be read: {reason}") from error


def _check(path):
    file = pathlib.Path(path, "config.json")
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
        if not isinstance(config, dict):
            raise ValueError("expected a JSON object")
    except (OSError, ValueError) as error:
        raise InputError(f"--weights: {file} cannot be read: {error}") from error
    name = config.get("model_type") or config.get("registered_name") or config.get("class_name", "")
    if name.rpartition(">")[2].lower().removesuffix("backbone") not in ARCHITECTURES:
        raise InputError(f"--weights: {path}: expected a BERT or ALBERT model. Received: {name or 'no class name'}")
    for option, supported in _SUPPORTED.items():
        if config.get(option, supported[0]) not in supported:
            raise InputError(f"--weights: {file}: {option}: expected {supported[0]}. Received: {config[option]}")
