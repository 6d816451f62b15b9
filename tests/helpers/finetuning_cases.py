"""Provides options, runs and weights for the tests of fine-tuning."""

import functools
import io
import json

import keras_hub
import numpy as np
import safetensors.numpy
import sentencepiece
from application_cases import changed, prepared_anywhere
from program_case import written
from program_cases import FINETUNING_CASE

from applications.finetuning.options import PROGRAM

APPLICATION = PROGRAM.application()

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "dog", "##s", "bark", "##ed", "at", "a", "cat", ".", ","]
HUGGING_FACE = {
    "model_type": "bert",
    "vocab_size": len(PIECES),
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 12,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
}


def options_of(folder, **values):
    """Write the data of the program's case to a folder, and return options of `train` for these data."""
    options = {**FINETUNING_CASE.options, **written(FINETUNING_CASE.data, folder), **values}
    return changed(APPLICATION.program.default, **options)


def run_of(folder, **values):
    """Return an untrained run with perturbed weights."""
    return prepared_anywhere(APPLICATION, options_of(folder, **values))


def pairs_with_scores(folder):
    (folder / "sts.csv").write_text("".join(f"the dog {n},a cat {n},{n / 4}\n" for n in range(20)))
    return {"task": "sts", "train": str(folder / "sts.csv"), "test": None}


def squad(folder):
    context = "The dog has seen the ball. A cat sat."
    questions = [
        {"id": str(n), "question": "Who saw it?", "answers": [{"text": "dog", "answer_start": 4}]} for n in range(8)
    ]
    content = {"data": [{"paragraphs": [{"context": context, "qas": questions}]}]}
    (folder / "squad.json").write_text(json.dumps(content))
    return {"task": "squad1", "train": str(folder / "squad.json"), "test": None, "max_length": 32, "stride": 8}


def bert_shapes(config):
    """Return the tensor shapes of BERT from Hugging Face."""
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


@functools.cache
def tensors():
    """Return the random tensors of a tiny BERT by their Hugging Face names."""
    generator, shapes = np.random.default_rng(0), bert_shapes(HUGGING_FACE)
    return {name: generator.normal(size=shape).astype("float32") for name, shape in shapes.items()}


def write_hugging_face(folder, config=HUGGING_FACE, **changes):
    """Write a folder in the Hugging Face layout, without tensors that are `None`; return its path.

    KerasHub 0.25 only reads the tensor names and the number of positions of the original BERT.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": True}))
    (folder / "vocab.txt").write_text("".join(f"{piece}\n" for piece in PIECES))
    first_names = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    values = {}
    for name, x in {**tensors(), **changes}.items():
        for new, old in first_names.items():
            name = name.replace(new, old)
        values |= {} if x is None else {f"bert.{name}": x}
    safetensors.numpy.save_file(values, folder / "model.safetensors")
    return str(folder)


@functools.cache
def albert_tokenizer():
    """Return an ALBERT tokenizer, which uses a SentencePiece model."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(
            ["the dogs barked at a cat.", "the dog has seen the ball.", "my friend has a book."] * 9
        ),
        model_writer=model,
        model_type="unigram",
        vocab_size=30,
        minloglevel=2,
        **{f"{name}_id": number for number, name in enumerate(("pad", "unk", "bos", "eos"))},
        bos_piece="[CLS]",
        eos_piece="[SEP]",
        control_symbols="[MASK]",
    )
    return keras_hub.models.AlbertTokenizer(model.getvalue())


def write_albert(folder):
    """Write a KerasHub preset of a tiny ALBERT and its tokenizer; return its path."""
    sizes = {"num_layers": 2, "num_heads": 2, "embedding_dim": 4, "hidden_dim": 8, "intermediate_dim": 12}
    keras_hub.models.AlbertBackbone(30, max_sequence_length=24, **sizes).save_to_preset(str(folder))
    albert_tokenizer().save_to_preset(str(folder))
    return str(folder)
