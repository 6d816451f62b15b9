"""The commands that read a run: evaluate, generate, export."""

import dataclasses
import pathlib
import sys

import numpy as np

from applications.common.errors import InputError
from applications.common.runs import write_json
from applications.common.serving import export_folder, print_endpoints
from applications.nmt.data import gold_links, load_splits_of
from applications.nmt.encoding import EncodedPairs
from applications.nmt.evaluation import evaluate_split, k_curve_report, translate
from applications.nmt.generation import Inference, Translator, default_inference, export
from applications.nmt.reporting import PICTURED, write_lines
from applications.nmt.training import load_run
from applications.text.readers import read_lines, read_parallel, read_standard_input
from applications.text.splits import check_split


@dataclasses.dataclass
class EvaluateOptions:
    """Report on a split of a run, under one or several inferences."""

    run: str
    """Folder of the run."""
    split: str = "valid"
    """valid or test, where no files are named."""
    source: str | None = None
    """Evaluate on other pairs: sources, one a line, plain or .gz; beside target."""
    target: str | None = None
    links: str | None = None
    """Gold word alignments of these pairs, a line a pair."""
    skip_invalid: bool = False
    """Count empty lines and links out of range of these files instead of stopping."""
    inference: tuple[str, ...] = ()
    """exact, kmax:K, soft or sample:n, one or several; the row's own where none is named."""
    k_curve: int = 0
    """Also log p for K = 1 ... this, the alignments summed over."""
    weights: str = "best"
    """best, last or averaged."""
    name: str = "evaluation"
    """Name of the .json file in the run's folder."""


def evaluate(options):
    """Report perplexity, BLEU and alignments of a run under one or several inferences."""
    if options.name in ("", "metrics", pathlib.Path(PICTURED).stem) or pathlib.Path(options.name).name != options.name:
        raise InputError(f"--name: must name a file that the run's folder has not. Received: {options.name!r}")
    if options.k_curve < 0:
        raise InputError(f"--k-curve: must be at least 0. Received: {options.k_curve}")
    check_split(options.split)
    folder, run_options, codec, models = load_run(options.run, options.weights)
    names = options.inference or (default_inference(run_options.row),)
    inferences = [Inference.parse(name, run_options.row) for name in names]
    if options.k_curve and models.latent is None:
        raise InputError(f"--k-curve: the alignments of {run_options.row} are continuous.")
    pairs, links = _pairs(options, folder, run_options)
    encoded = EncodedPairs.encode(run_options, codec, pairs)
    files = {name: getattr(options, name) for name in ("source", "target", "links")}
    split = None if any(files.values()) else options.split
    report = {"split": split, "files": files, "weights": options.weights, "data": encoded.report}
    report |= {"inferences": [], "k_curve": None}
    cut = {side: encoded.report[f"{side}_num_truncated"] for side in ("source", "target")}
    if any(cut.values()):
        print(
            f"cut to {run_options.max_length} tokens: {cut['source']} sources, {cut['target']} targets; of a target "
            "that is cut the perplexity has the words that are left, BLEU all of them",
            file=sys.stderr,
        )
    for name, inference in zip(names, inferences, strict=True):
        found, sentences = evaluate_split(models, codec, run_options, pairs, encoded, inference, links)
        write_lines(folder.file(f"{options.name}_{name.replace(':', '_')}_hypotheses.txt"), sentences["hypotheses"])
        report["inferences"].append(found)
        likelihood, translation = found["likelihood"], found["translation"]
        print(
            f"{inference.name}: perplexity ({likelihood['kind']}) {likelihood['perplexity']:.3f}, BLEU "
            f"{translation['bleu']:.2f}, chrF {translation['chrf']:.2f}, exact match "
            f"{100 * translation['exact_match']:.1f}%",
            flush=True,
        )
    if options.k_curve:
        report["k_curve"] = k_curve_report(
            Translator(models, codec, run_options), run_options, encoded, options.k_curve
        )
    write_json(folder.file(f"{options.name}.json"), report)
    print(f"written: {folder.path / options.name}.json")


def _pairs(options, folder, run_options):
    """Return the pairs to evaluate on and their gold links, or `None`."""
    if options.source is None and options.target is None:
        if options.links is not None:
            raise InputError("--links: those of a run's own pairs are named when it is trained; see --test-links.")
        splits = load_splits_of(folder, run_options)
        return splits.split(options.split), splits.links.get(options.split)
    if options.source is None or options.target is None:
        raise InputError("--source and --target belong together; one of them is missing.")
    pairs = read_parallel(options.source, options.target, options.skip_invalid)
    return pairs, None if options.links is None else gold_links(options.links, pairs, options.skip_invalid)


@dataclasses.dataclass
class GenerateOptions:
    """Translate lines of text, from a file or standard input."""

    run: str
    """Folder of the run."""
    input: str | None = None
    """File with one source a line, plain or .gz; standard input where it is left out."""
    inference: str | None = None
    """exact, kmax:K, soft or sample:n; the row's own where it is left out. Draws depend on the lines beside one."""
    num_beams: int | None = None
    """Beams instead of the run's."""
    weights: str = "best"


def generate(options):
    """Write one translation per input line to standard output."""
    if options.num_beams is not None and options.num_beams < 1:
        raise InputError(f"--num-beams: must be positive. Received: {options.num_beams}")
    lines = read_lines(options.input) if options.input is not None else read_standard_input()
    _, run_options, codec, models = load_run(options.run, options.weights)
    inference = Inference.parse(options.inference or default_inference(run_options.row), run_options.row)
    if options.num_beams is not None:
        run_options = dataclasses.replace(run_options, num_beams=options.num_beams)
    ids, report = codec.source.encode_numpy(lines, run_options.max_length)
    if report.num_truncated or report.num_unknown:
        print(
            f"{report.num_truncated} lines were truncated to {run_options.max_length} tokens, "
            f"{report.num_unknown} of {report.num_tokens} tokens are unknown",
            file=sys.stderr,
        )
    translator = Translator(models, codec, run_options, inference)
    for sentence in translate(translator, codec, [np.asarray(row) for row in ids]):
        print(sentence)


@dataclasses.dataclass
class ExportOptions:
    """Write a SavedModel with the endpoints generate, n_best and score."""

    run: str
    """Folder of the run."""
    out: str | None = None
    """Folder of the SavedModel; saved_model in the run's folder where it is left out."""
    inference: str | None = None
    """exact, kmax:K or soft; the row's own where it is left out."""
    weights: str = "best"


def export_run(options):
    """Write the SavedModel of a run: strings in, translations out."""
    folder, run_options, codec, models = load_run(options.run, options.weights)
    inference = Inference.parse(options.inference or default_inference(run_options.row), run_options.row)
    if inference.kind == "sample":
        raise InputError(
            f"--inference: an export has no draws; choose exact, kmax:K or soft. Received: {inference.name}"
        )
    path = export_folder(options.out, folder.path / "saved_model")
    export(Translator(models, codec, run_options, inference), path)
    print_endpoints(path)
