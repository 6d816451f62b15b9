"""Writes the subsets of easy-VQA, SST-2 and CoLA that the tables of docs/uncertainty.md use.

    python docs/experiments/uncertainty_data.py EASY_VQA VQA_V2_QUESTIONS SST_2 COLA FOLDER

EASY_VQA is the folder of the published images and questions, VQA_V2_QUESTIONS is a questions file of VQA v2, and SST_2
and COLA are folders of GLUE. Files may be compressed (.gz). The script writes these files into FOLDER:

- images.npz: the 4,000 training images of easy-VQA, then its test images.
- train.tsv, valid.tsv, test.tsv: 3,000, 500 and 1,000 questions of easy-VQA.
- other.tsv: 500 questions of VQA v2, which are about photographs, each with a random test image and a dummy answer.
- phrases_train.tsv, phrases_valid.tsv: 2,000 and 500 phrases from the training split of SST-2.
- sentences.tsv: a third of the two development splits of CoLA.
"""

import csv
import gzip
import json
import pathlib
import random
import sys

import numpy as np


def opened(path):
    compressed = pathlib.Path(f"{path}.gz")
    return gzip.open(compressed, "rt", encoding="utf-8") if compressed.exists() else path.open(encoding="utf-8")


def write(name, heads, rows):
    with (folder / name).open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, delimiter="\t", lineterminator="\n").writerows([heads, *rows])


easy, questions, sst, cola, folder = map(pathlib.Path, sys.argv[1:])
folder.mkdir(parents=True, exist_ok=True)
images = [np.load(easy / f"{part}_images.npz")["images"] for part in ("train", "test")]
np.savez_compressed(folder / "images.npz", images=np.concatenate(images))
generator, train_images = random.Random(0), list(range(4000))
generator.shuffle(train_images)
chosen = {"train": train_images[:600], "valid": train_images[600:800], "test": generator.sample(range(4000, 5000), 300)}
rows = []
for part, first in (("train", 0), ("test", 4000)):
    with opened(easy / f"{part}_questions.json") as file:
        rows += [(image + first, question, answer) for question, answer, image in json.load(file)]
rows = {part: [row for row in rows if row[0] in part_images] for part, part_images in chosen.items()}
with opened(questions) as file:
    photographs = [x["question"] for x in json.load(file)["questions"]][:2500]
rows["other"] = [(generator.choice(sorted(chosen["test"])), question, "yes") for question in photographs]
for part, count in (("train", None), ("valid", 500), ("test", 1000), ("other", 500)):
    part_rows = rows[part]
    if count:
        random.Random(0).shuffle(part_rows)
    write(f"{part}.tsv", ("image", "question", "answer"), part_rows[: count or 3000])

with opened(sst / "train.tsv") as file:
    phrases = [line.rstrip("\n").split("\t") for line in file][1:]
generator.shuffle(phrases)
write("phrases_train.tsv", ("sentence", "label"), phrases[:2000])
write("phrases_valid.tsv", ("sentence", "label"), phrases[2000:2500])
sentences = []
for part in ("in_domain_dev.tsv", "out_of_domain_dev.tsv"):
    with opened(cola / part) as file:
        sentences += [line.rstrip("\n").split("\t") for line in file]
write("sentences.tsv", ("sentence", "label"), [(x[3], x[1]) for x in sentences[2::3]])
