"""Pretrained transformers from folders: presets of KerasHub, and BERT from Hugging Face."""

from safetensors import SafetensorError

from applications.common.errors import InputError


def tokenizer_of(path):
    """Return the tokenizer of a folder."""
    import keras_hub

    return _read(path, keras_hub.models.Tokenizer.from_preset)


def backbone_of(path, **options):
    """Return the transformer of a folder, with other options of its config where they are named, or with random weights
    by `load_weights=False`; `InputError` where KerasHub finds a tensor missing or of another shape."""
    import keras_hub

    backbone = _read(path, keras_hub.models.Backbone.from_preset, name="backbone", **options)
    if not isinstance(backbone, keras_hub.models.BertBackbone | keras_hub.models.AlbertBackbone):
        raise InputError(f"--weights: {path}: expected a BERT or ALBERT. Received: {type(backbone).__name__}")
    return backbone


def _read(path, from_preset, **options):
    try:
        return from_preset(str(path), **options)
    except (AttributeError, ImportError, LookupError, OSError, TypeError, ValueError, SafetensorError) as error:
        # Keras's messages have several lines, and all values of a variable at their end.
        reason = " ".join(str(error).partition(", value=")[0].split())
        raise InputError(f"--weights: {path} cannot be read: {reason}") from error
