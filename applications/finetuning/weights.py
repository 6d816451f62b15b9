"""Pretrained transformers from folders: presets of KerasHub, and BERT from Hugging Face."""

import json
import pathlib

from applications.common.errors import InputError

ARCHITECTURES = ("bert", "albert")
# What KerasHub makes of a folder from Hugging Face, whatever its config says.
_UNDERSTOOD = {"hidden_act": ("gelu", "gelu_new", "gelu_pytorch_tanh"), "position_embedding_type": ("absolute",)}


def tokenizer_of(path):
    """Return the tokenizer of a folder."""
    import keras_hub

    _check(path)
    return _read(path, lambda: keras_hub.models.Tokenizer.from_preset(str(path)))


def backbone_of(path, load_weights=True, **options):
    """Return the transformer of a folder.

    Args:
        path: Folder.
        load_weights: Whether its weights are those of the folder.
        **options: Values that take the place of those of its config.

    Raises:
        InputError: If it is of another architecture, or a tensor is missing or of another shape, which is named.
    """
    import keras_hub

    _check(path)
    # KerasHub knows its presets and those of Hugging Face, and needs no torch.
    return _read(
        path,
        lambda: keras_hub.models.Backbone.from_preset(str(path), load_weights=load_weights, name="backbone", **options),
    )


def _read(path, function):
    try:
        return function()
    except ImportError as error:
        raise InputError(f'--weights: {path} needs another package: {error} pip install "keras_vattn[apps]"') from error
    except (OSError, KeyError, ValueError, TypeError) as error:
        raise InputError(f"--weights: {path} cannot be read: {error}") from error


def _check(path):
    config = _json(pathlib.Path(path, "config.json"))
    if "model_type" not in config:
        name = config.get("registered_name") or config.get("class_name", "")
        if name.rpartition(">")[2].lower() not in [f"{known}backbone" for known in ARCHITECTURES]:
            raise InputError(f"--weights: {path}: expected a BERT or ALBERT. Received: {name or 'no class name'}")
        return
    kind = config["model_type"]
    if kind not in ARCHITECTURES:
        raise InputError(f"--weights: {path}: expected a bert or albert. Received: {kind}")
    for name, known in _UNDERSTOOD.items():
        if config.get(name, known[0]) not in known:
            raise InputError(f"--weights: {path}/config.json: {name}: expected {known[0]}. Received: {config[name]}")
    if kind == "bert":
        _check_tensors(path, config)


def _check_tensors(path, config):
    """Raise `InputError` for the first tensor of a BERT that is missing or has another shape than its config says."""
    file = pathlib.Path(path, "model.safetensors")
    found = shapes_of(file)
    prefix = "bert." if any(name.startswith("bert.") for name in found) else ""
    try:
        expected = bert_shapes(config)
    except KeyError as error:
        raise InputError(f"--weights: {path}/config.json has no {error}.") from error
    for name, shape in expected.items():
        received = found.get(prefix + name)
        if received != shape:
            raise InputError(
                f"--weights: {file}: {prefix}{name} should have shape {shape} by config.json. "
                f"Received: {'no such tensor' if received is None else received}"
            )


def bert_shapes(config):
    """Return the shapes of the tensors of a BERT from Hugging Face."""
    width, inner = config["hidden_size"], config["intermediate_size"]
    sizes = {"word": config["vocab_size"], "position": config["max_position_embeddings"]}
    sizes["token_type"] = config.get("type_vocab_size", 2)
    shapes = {f"embeddings.{name}_embeddings.weight": (size, width) for name, size in sizes.items()}
    kernels, norms = {}, ["embeddings"]
    for layer in range(config["num_hidden_layers"]):
        place = f"encoder.layer.{layer}"
        kernels |= {f"{place}.attention.self.{name}": (width, width) for name in ("query", "key", "value")}
        kernels |= {f"{place}.attention.output.dense": (width, width)}
        kernels |= {f"{place}.intermediate.dense": (inner, width), f"{place}.output.dense": (width, inner)}
        norms += [f"{place}.attention.output", f"{place}.output"]
    for name, shape in (kernels | {"pooler.dense": (width, width)}).items():
        shapes |= {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
    return shapes | {f"{name}.LayerNorm.{kind}": (width,) for name in norms for kind in ("weight", "bias")}


def shapes_of(path):
    """Return the shapes of the tensors in a .safetensors file, a dictionary."""
    import safetensors

    try:
        with safetensors.safe_open(path, "numpy") as file:
            return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    except (OSError, safetensors.SafetensorError) as error:
        raise InputError(f"--weights: {path} cannot be read: {error}") from error


def _json(path):
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"--weights: {path} cannot be read: {error}") from error
