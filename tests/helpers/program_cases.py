"""Defines the test cases of all programs, with tiny data and options."""

import pathlib
import re
import sys
import tempfile

import numpy as np
from image_cases import array_of, caption_file, colored_images, question_table
from program_case import Case

from applications.captioning.options import PROGRAM as CAPTIONING
from applications.finetuning.options import PROGRAM as FINETUNING
from applications.graphs.options import PROGRAM as GRAPHS
from applications.nmt.options import PROGRAM as NMT
from applications.ved.options import PROGRAM as VED
from applications.vqa.options import PROGRAM as VQA
from applications.vrae.options import PROGRAM as VRAE

ROOT = pathlib.Path(__file__).parents[2]
_PAGE = ROOT / "docs" / "new_application.md"
# The files of the example in docs/new_application.md, a dictionary from names to texts, so that tests can run them.
SPOTLIGHT_FILES = {
    name.replace("\\", ""): text
    for name, text in re.findall(
        r"^## (spotlight/\S+)\n.*?^```python\n(.*?)^```$", _PAGE.read_text("utf-8"), re.M | re.S
    )
}
_folder = tempfile.TemporaryDirectory()
SPOTLIGHT_FOLDER = pathlib.Path(_folder.name)
for _name, _text in SPOTLIGHT_FILES.items():
    (SPOTLIGHT_FOLDER / _name).parent.mkdir(exist_ok=True)
    (SPOTLIGHT_FOLDER / _name).write_text(_text, encoding="utf-8")
sys.path.append(str(SPOTLIGHT_FOLDER))
from spotlight.options import PROGRAM as SPOTLIGHT  # noqa: E402

SOURCES = ("der hund", "die katze", "das kind", "mein freund")
THINGS = {"den ball": "the ball", "das haus": "the house", "ein buch": "a book"}
VERBS = {"gesehen": "seen", "gekauft": "bought", "gefunden": "found"}
PAIRS = [
    (f"{subject} hat {thing} {verb}", f"{other} has {VERBS[verb]} {THINGS[thing]}")
    for subject, other in zip(SOURCES, ("the dog", "the cat", "the child", "my friend"), strict=True)
    for thing in THINGS
    for verb in VERBS
]


def table_of(pairs):
    return "".join(f"{source}\t{target}\n" for source, target in (("source", "target"), *pairs))


def numbers(rows, seed=0):
    """Return `rows` lines with examples for the program spotlight."""
    steps = np.random.default_rng(seed).normal(size=(rows, 6, 4)).round(2)
    return [
        " ".join(map(str, [int(row[0, 1:].argmax()), *row.ravel()]))
        for row in np.where(np.arange(4) > 0, steps, (np.arange(6) == 0)[None, :, None] * 4)
    ]


SPOTLIGHT_CASE = Case(
    program=SPOTLIGHT,
    options={"units": 4, "batch_size": 10, "epochs": 2},
    data={"data": "".join(f"{line}\n" for line in numbers(60))},
    evaluated={"data": "".join(f"{line}\n" for line in numbers(12, seed=1))},
    lines=tuple(line.partition(" ")[2] for line in numbers(3, seed=2)),
    answers=("codec.json",),
    steps=5,
    unreadable=(
        b"1 2 three\n",
        "standard input: needs 24 numbers per line: could not convert string to float: 'three'",
    ),
)
TEXT = {"embedding_width": 6, "encoder_units": 5, "units": 8, "valid_fraction": 0.2, "epochs": 2}
VED_CASE = Case(
    program=VED,
    options={
        **TEXT,
        "latent_units": 3,
        "attention_size": 6,
        "max_source_length": 7,
        "max_target_length": 5,
        "batch_size": 10,
        "annealing_center": 4.0,
        "annealing_slope": 0.5,
        "num_draws": 2,
        "num_decoded": 3,
        "max_test_sources": 9,
    },
    data={"train_table": table_of(PAIRS), "test_table": table_of(PAIRS[::7])},
    evaluated={"table": table_of(PAIRS[3:8])},
    lines=("der hund hat das haus gekauft", "mein freund", ""),
    answers=("source_vocabulary.txt", "target_vocabulary.txt", "samples.txt", "generated.txt", "alignment.png"),
)
NMT_CASE = Case(
    program=NMT,
    options={
        **TEXT,
        "model": "variational_enum",
        "attention_units": 5,
        "vocabulary_size": 60,
        "segmentation": "words",
        "emission": "words",
        "max_length": 12,
        "batch_size": 10,
        "num_beams": 2,
    },
    data={"train_table": table_of(PAIRS), "test_table": table_of(PAIRS[::7])},
    evaluated={"table": table_of(PAIRS[3:8])},
    lines=("der hund hat das haus gekauft", "mein freund hat den ball", ""),
    answers=(
        "source_vocabulary.txt",
        "target_vocabulary.txt",
        "samples.txt",
        "hypotheses.txt",
        "references.txt",
        "alignments.png",
    ),
)
VQA_CASE = Case(
    program=VQA,
    options={
        "model": "variational_enum",
        "network": "pixels",
        "grid": 2,
        "image_size": 8,
        "word_width": 4,
        "units": 8,
        "answer_width": 3,
        "valid_fraction": 0.2,
        "batch_size": 12,
        "num_draws": 3,
        "epochs": 2,
    },
    data={
        "train_questions": question_table(range(15)),
        "test_questions": question_table(range(15, 20)),
        "images": array_of(colored_images(20)),
    },
    evaluated={"questions": question_table(range(3, 9))},
    lines=("0\twhat color is it ?", "17\tis it red ?", "3\tand this ?"),
    answers=("codec.json", "regions.json", "extractor", "answers.txt", "cards.png"),
)


CAPTIONING_CASE = Case(
    program=CAPTIONING,
    options={
        "model": "wc",
        "network": "pixels",
        "grid": 2,
        "image_size": 8,
        "max_length": 5,
        "word_width": 4,
        "units": 8,
        "attention_units": 5,
        "prior_hidden_units": 3,
        "valid_fraction": 0.2,
        "batch_size": 8,
        "num_beams": 2,
        "num_draws": 2,
        "num_decoded": 2,
        "java": False,
        "schedule": "constant",
        "epochs": 2,
    },
    data={
        "train_captions": caption_file(range(15)),
        "test_captions": caption_file(range(15, 20)),
        "images": array_of(colored_images(20)),
    },
    evaluated={"captions": caption_file(range(3, 9))},
    lines=("0", "17", "3"),
    answers=("codec.json", "regions.json", "extractor", "captions.txt", "samples.txt", "pictures"),
)
VRAE_CASE = Case(
    program=VRAE,
    options={
        "embedding_width": 6,
        "units": 8,
        "latent_units": 3,
        "max_length": 7,
        "word_dropout": 0.2,
        "valid_fraction": 0.2,
        "batch_size": 10,
        "num_draws": 2,
        "num_decoded": 5,
        "schedule": "constant",
        "epochs": 2,
    },
    data={
        "train_text": "".join(f"{english}\n" for _, english in PAIRS),
        "test_text": "".join(f"{english}\n" for _, english in PAIRS[::7]),
    },
    evaluated={"text": "".join(f"{english}\n" for _, english in PAIRS[3:8])},
    lines=("the dog has seen the ball", "my friend", "the zebra"),
    answers=("vocabulary.txt", "samples.txt", "generated.txt", "attention.png"),
    answer_options=("--mode", "reconstruct"),
)
# Nodes of three classes in a ring. The features of a node are its class and its number.
_NODES = [
    (number, "abc"[number % 3], "train" if number < 12 else "valid" if number < 18 else "test") for number in range(24)
]
GRAPHS_CASE = Case(
    program=GRAPHS,
    options={
        "units": 3,
        "num_heads": 2,
        "weibull_k": 5.0,
        "prior_beta": 1.0,
        "neighbors": (2, 2),
        "batch_size": 4,
        "num_draws": 2,
        "early_stopping": None,
        "tensorboard": True,
        "jit": "off",
        "epochs": 2,
    },
    data={
        "edges": "source,target\n" + "".join(f"n{i},n{(i + 3) % 24}\nn{i},n{(i + 1) % 24}\n" for i, _, _ in _NODES),
        "nodes": "node,label,split,first,second,third\n"
        + "".join(f"n{i},{label},{part},{i % 3 == 0:d},{i % 3 == 1:d},{i / 24}\n" for i, label, part in _NODES),
    },
    evaluated={
        "edges": "x,y\ny,z\nz,x\n",
        "nodes": "node,label,first,second,third\nx,a,1,0,0\ny,b,0,1,0\nz,,0,0,1\n",
    },
    lines=("n3", "n4", "n23"),
    answers=("codec.json", "nodes.txt", "uncertainty.png"),
)
FINETUNING_CASE = Case(
    program=FINETUNING,
    options={
        "model": "wc",
        "drawn_share": 1,
        "valid_fraction": 0.25,
        "max_length": 16,
        "pretraining_steps": 2,
        "prior_hidden_units": 3,
        "schedule": "constant",
        "batch_size": 8,
        "epochs": 2,
        "warmup_steps": 1,
        "num_draws": 2,
    },
    data={
        "train": "text\tlabel\n" + "".join(f"{english}\t{'ball' in english}\n" for _, english in PAIRS),
        "test": "text\tlabel\n" + "".join(f"{english}\t{'ball' in english}\n" for _, english in PAIRS[::7]),
    },
    evaluated={"data": "text\tlabel\n" + "".join(f"{english}\t{'ball' in english}\n" for _, english in PAIRS[3:8])},
    lines=("the dog has seen the ball", "my friend", "the zebra"),
    answers=("answers.txt", "labels.json", "tokenizer"),
)
CASES = {
    case.name: case
    for case in (SPOTLIGHT_CASE, VED_CASE, NMT_CASE, VQA_CASE, CAPTIONING_CASE, VRAE_CASE, GRAPHS_CASE, FINETUNING_CASE)
}
TOY = "spotlight"
