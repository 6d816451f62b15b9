"""The commands that read a finished run: evaluate, generate, export."""

import dataclasses
import math
import pathlib
import sys

import tensorflow as tf

import keras_vattn
from applications.common.errors import InputError
from applications.common.runs import write_json
from applications.common.serving import export_folder, print_endpoints
from applications.text.readers import read_lines, read_standard_input
from applications.text.splits import check_split
from applications.ved.data import EncodedPairs, load_splits_of, unique_sources
from applications.ved.evaluation import decode_all, evaluate_split, sample_report, seed_of_batch
from applications.ved.generation import Generator, export
from applications.ved.options import find_row
from applications.ved.training import load_run


@dataclasses.dataclass
class EvaluateOptions:
    """Report on a split of a finished run, and trace its quality-diversity curve."""

    run: str
    """Folder of the run."""
    split: str = "valid"
    """valid or test."""
    max_sources: int | None = None
    """Decode that many different sources, the first ones."""
    latent_temperatures: tuple[float, ...] = ()
    """Also sample at these factors on sigma, for instance 0 0.5 1 1.5."""
    word_temperatures: tuple[float, ...] = ()
    """Also draw words at these temperatures, the latents at their means."""
    curves_only: bool = False
    """Leave out everything but the curves."""
    name: str = "evaluation"
    """Name of the .json and .png files in the run's folder."""


def evaluate(options):
    """Report quality, diversity, bounds and the quality-diversity curve of a run."""
    if not all(0 <= temperature < math.inf for temperature in options.latent_temperatures):
        raise InputError(f"--latent-temperatures: must be at least 0. Received: {options.latent_temperatures}")
    if not all(0 < temperature < math.inf for temperature in options.word_temperatures):
        raise InputError(f"--word-temperatures: must be positive. Received: {options.word_temperatures}")
    if options.max_sources is not None and options.max_sources < 1:
        raise InputError(f"--max-sources: must be positive. Received: {options.max_sources}")
    if options.name in ("", "metrics", "curves", "alignment") or pathlib.Path(options.name).name != options.name:
        raise InputError(f"--name: must name a file that the run's folder has not. Received: {options.name!r}")
    check_split(options.split)
    folder, run_options, codec, models = load_run(options.run)
    pairs = load_splits_of(folder, run_options).split(options.split)
    generator = Generator(models, codec, run_options)
    report = {}
    if not options.curves_only:
        encoded = EncodedPairs.encode(run_options, codec, pairs)
        report, _ = evaluate_split(generator, models, codec, run_options, pairs, encoded, options.max_sources)
    report["split"] = options.split
    report["curves"] = quality_diversity_curves(generator, codec, run_options, pairs, options)
    write_json(folder.file(f"{options.name}.json"), report)
    for name, values in report.items():
        print(f"{name}: {values}")
    if report["curves"]:
        points = {
            f"{run_options.row}, {kind} temperature": [
                (row["entropy"], row["bleu_4"], f"{row['temperature']:g}") for row in rows
            ]
            for kind, rows in report["curves"].items()
        }
        keras_vattn.plots.quality_diversity(
            points, quality_label="BLEU-4", diversity_label="entropy (nats)", path=folder.file(f"{options.name}.png")
        )


def quality_diversity_curves(generator, codec, run_options, pairs, options):
    """Return a dictionary from "latent" and "word" to the diversity reports at each temperature."""
    sources, references = unique_sources(codec, pairs, options.max_sources)
    ids, _ = codec.source.encode_numpy(sources, run_options.max_source_length)
    curves = {}
    for kind, temperatures in (("latent", options.latent_temperatures), ("word", options.word_temperatures)):
        if kind == "latent" and not find_row(run_options.row).stochastic:
            continue
        for temperature in temperatures:
            arguments = {"temperature": temperature} if kind == "latent" else {"word_temperature": temperature}
            report, _ = sample_report(
                generator, codec, run_options, ids, references, title=f"{kind} temperature {temperature:g}", **arguments
            )
            curves.setdefault(kind, []).append({"temperature": temperature, **report})
    return curves


@dataclasses.dataclass
class GenerateOptions:
    """Turn lines of text into generated lines, from a file or standard input."""

    run: str
    """Folder of the run."""
    input: str | None = None
    """File with one source a line, plain or .gz; standard input where it is left out."""
    num_samples: int = 0
    """0 for one sentence at the posterior means; otherwise that many draws per line, separated by tabs."""
    num_beams: int = 1
    """Beams of the one sentence; 1 is greedy."""
    length_penalty: float = 0.0
    """Of the beam search (Wu et al. 2016)."""
    seed: int = 0


def generate(options):
    """Write one generated line per input line to standard output."""
    if options.num_samples < 0:
        raise InputError(f"--num-samples: must be at least 0. Received: {options.num_samples}")
    if not -(2**31) <= options.seed < 2**31:
        raise InputError(f"--seed: must be an integer of 32 bits. Received: {options.seed}")
    if options.num_beams < 1:
        raise InputError(f"--num-beams: must be positive. Received: {options.num_beams}")
    if options.num_beams > 1 and options.num_samples:
        raise InputError("--num-beams: draws are decoded greedily; leave out one of --num-beams and --num-samples.")
    if not 0 <= options.length_penalty < math.inf:
        raise InputError(f"--length-penalty: must be at least 0. Received: {options.length_penalty}")
    lines = read_lines(options.input) if options.input is not None else read_standard_input()
    _, run_options, codec, models = load_run(options.run)
    generator = Generator(models, codec, run_options)
    ids, report = codec.source.encode_numpy(lines, run_options.max_source_length)
    if report.num_truncated or report.num_unknown:
        print(
            f"{report.num_truncated} lines were truncated to {run_options.max_source_length} tokens, "
            f"{report.num_unknown} of {report.num_tokens} tokens are unknown",
            file=sys.stderr,
        )
    if options.num_samples:

        def decode(batch, number):
            return generator.draw(batch, options.num_samples, seed_of_batch(options.seed, number), 1.0)

    elif options.num_beams > 1:

        @tf.function(reduce_retracing=True, autograph=False)
        def search(batch):
            return generator.beam(batch, options.num_beams, options.length_penalty)["ids"]

        def decode(batch, _):
            return search(batch)

    else:

        def decode(batch, _):
            return generator.greedy(batch)["ids"]

    for sentence in decode_all(decode, codec.target, ids, "generating"):
        print(sentence if isinstance(sentence, str) else "\t".join(sentence))


@dataclasses.dataclass
class ExportOptions:
    """Write a SavedModel with the endpoints generate, sample and score."""

    run: str
    """Folder of the run."""
    out: str | None = None
    """Folder of the SavedModel; saved_model in the run's folder where it is left out."""


def export_run(options):
    """Write the SavedModel of a run: strings in, strings out."""
    folder, run_options, codec, models = load_run(options.run)
    path = export_folder(options.out, folder.path / "saved_model")
    export(Generator(models, codec, run_options), path)
    print_endpoints(path)
