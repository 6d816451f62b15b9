"""The input of a real epoch: whether training waits for it, and how much of its batches is padding.

    PYTHONPATH=tests python -m benchmarks.nmt_input SOURCE TARGET [--batch-size 32] [--steps 300]

Batches of sentences of one bucket stand beside those that the published code makes, of sentences sorted by their
lengths within pools of 50 batches. Writes runs/benchmarks/nmt_input.json.
"""

import argparse
import itertools
import json
import pathlib
import time

import numpy as np
from benchmarks.nmt_step import SMALL
from benchmarks.paper import compiled, paper_options

import keras_vattn
from applications.nmt.data import Codec
from applications.nmt.options import PROGRAM
from applications.text.text import PAD

APPLICATION = PROGRAM.application()
POOL = 50


def seconds_of_training(run, part, num_steps):
    """Return the seconds of steps, those spent in waiting for a batch, and those of the batches alone."""
    model = run.models.training
    for batch, _ in zip(part.training_batches(run.options, first_epoch=0), range(20), strict=False):
        model.train_on_batch(*batch)
    waited, steps = 0.0, 0.0
    batches = iter(part.training_batches(run.options, first_epoch=0))
    next(batches)
    for _ in range(num_steps):
        start = time.perf_counter()
        batch = next(batches)
        fetched = time.perf_counter()
        model.train_on_batch(*batch)
        waited += fetched - start
        steps += time.perf_counter() - start
    start = time.perf_counter()
    for _ in itertools.islice(iter(part.training_batches(run.options, first_epoch=0)), num_steps):
        pass
    return {"steps": steps, "waited": waited, "batches alone": time.perf_counter() - start}


def padding_of_buckets(run, part, num_batches):
    """Return the share of padding in the source and the target of an epoch, and the number of shapes."""
    shapes, filled, places = set(), np.zeros(2), np.zeros(2)
    for inputs, target in itertools.islice(part.training_batches(run.options, first_epoch=0), num_batches):
        both = [inputs["source"].numpy(), target.numpy()]
        shapes.add(both[0].shape[1:] + both[1].shape[1:])
        filled += [np.count_nonzero(x) for x in both]
        places += [x.size for x in both]
    return 1.0 - filled / places, len(shapes)


def padding_of_pools(part, batch_size):
    """Return the share of padding where a pool of batches is sorted by the lengths, and each is as long as its longest
    sentence; and the number of shapes."""
    lengths = np.array([[len(source), len(target) + 1] for source, target in zip(part.sources, part.targets)])
    lengths = lengths[np.random.default_rng(0).permutation(len(lengths))]
    shapes, places = set(), np.zeros(2)
    for start in range(0, len(lengths), POOL * batch_size):
        pool = lengths[start : start + POOL * batch_size]
        pool = pool[np.lexsort((pool[:, 1], pool[:, 0]))]
        for first in range(0, len(pool), batch_size):
            batch = pool[first : first + batch_size]
            places += len(batch) * batch.max(axis=0)
            shapes.add(tuple(batch.max(axis=0)))
    return 1.0 - lengths.sum(axis=0) / places, len(shapes)


def main(arguments):
    files = {"train_source": arguments.source, "train_target": arguments.target}
    options = paper_options(
        PROGRAM, model="soft", **files, **SMALL, vocabulary_size=6000, batch_size=arguments.batch_size
    )
    parts = APPLICATION.read(options)
    codec = Codec.fit(options, parts["train"])
    part = APPLICATION.encode(options, codec, parts["train"], True)
    run = compiled(options, APPLICATION.build(options, codec), loss=keras_vattn.NegativeBound(ignore_class=PAD))
    found = seconds_of_training(run, part, arguments.steps)
    num_batches = part.num_batches(options.fit.batch_size)
    for name, (shares, num_shapes) in {
        "buckets": padding_of_buckets(run, part, num_batches),
        f"pools of {POOL}": padding_of_pools(part, options.fit.batch_size),
    }.items():
        found[name] = {"padding of sources": shares[0], "padding of targets": shares[1], "shapes": num_shapes}
    path = pathlib.Path("runs/benchmarks/nmt_input.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found, indent=2))
    print(json.dumps(found, indent=2))
    print(f"waited {found['waited'] / found['steps']:.2%} of {arguments.steps} steps")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("source")
    parser.add_argument("target")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--steps", type=int, default=300)
    main(parser.parse_args())
