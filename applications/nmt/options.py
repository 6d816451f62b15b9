"""Options of neural machine translation with latent alignments, and its models. The presets stand in presets/."""

import dataclasses
from typing import Literal

from applications.common.bayesian_options import BayesianOptions
from applications.common.errors import InputError
from applications.common.inference import Inference
from applications.common.options import (
    CompareOptions,
    Dropout,
    ExportOptions,
    File,
    FitOptions,
    Folder,
    Fraction,
    GenerateOptions,
    NotNegative,
    NotNegativeFloat,
    Positive,
    PositiveFloat,
    RunOptions,
    group,
)
from applications.common.program import Program
from applications.text.options import DecodeOptions, EvaluatePairsOptions, PairOptions


@dataclasses.dataclass(frozen=True)
class Model:
    """One line of the papers' tables.

    Attributes:
        objective: Words of a `keras_vattn.LatentObjective`, or `None` where the decoder's own attention draws weights.
        alignment: Alignment of the decoder's attention where that draws, `None` for softmax.
        needs_posterior: Whether training has an inference network that sees the target.
        num_samples: Draws of a word's alignment in training.
        title: Name of the model in the papers.
        value: What is maximised.
        expectation: How its expectation is taken.
    """

    title: str
    value: str
    expectation: str
    objective: str | None = None
    alignment: str | None = None
    needs_posterior: bool = False
    num_samples: int = 1

    @property
    def feeding(self):
        """What the decoder is fed: what p expects (Deng et al. 2018), or the drawn context (Fan et al. 2020)."""
        return "sampled" if self.is_bayesian else "expected"

    @property
    def is_bayesian(self):
        return self.alignment is not None and not self.needs_posterior

    @property
    def is_continuous(self):
        return self.alignment is not None

    @property
    def inference(self):
        """Name of the inference that the model is reported with: a relaxed alignment has to be sampled (section 4)."""
        return "sample:10" if self.is_continuous and self.needs_posterior else self.inference_without_draws

    @property
    def inference_without_draws(self):
        """Name of the inference of exports, and of translations after an epoch."""
        return "soft" if self.objective == "soft" or self.is_continuous else "exact"


# Titles, values and expectations as Table 1 of Deng et al. 2018 has them; BAM's from Fan et al. 2020, eq. 6.
_ELBO = "E_q[log p] - KL"
MODELS = {
    "soft": Model("Soft Attention", "log p(y | E[z])", "-", "soft"),
    "marginal": Model("Marginal Likelihood", "log E[p]", "Enum", "marginal"),
    "hard_enum": Model("Hard Attention", "E_p[log p]", "Enum", "hard/enumerate"),
    "hard_sample": Model("Hard Attention", "E_p[log p]", "Sample", "hard/sample"),
    "relaxed": Model("Variational Relaxed Attention", _ELBO, "Sample", alignment="relaxed", needs_posterior=True),
    "variational_enum": Model("Variational Attention", _ELBO, "Enum", "elbo/enumerate", needs_posterior=True),
    "variational_sample": Model("Variational Attention", _ELBO, "Sample", "elbo/sample", needs_posterior=True),
    "variational_gumbel": Model("Variational Attention", _ELBO, "Gumbel-softmax", "elbo/gumbel", needs_posterior=True),
    "variational_wake_sleep": Model(
        "Variational Attention",
        "log p, importance sampled",
        "Wake-sleep",
        "wake_sleep/sample",
        needs_posterior=True,
        num_samples=5,
    ),
    "wc": Model("BAM-WC", _ELBO, "Sample", alignment="weibull"),
    "lc": Model("BAM-LC", _ELBO, "Sample", alignment="lognormal"),
}


@dataclasses.dataclass
class TextOptions(PairOptions):
    """Pairs of sentences; without them, embedded ones with known alignments"""

    data: Folder | None = None
    """Folder with train, valid and test files, named train.src and train.tgt, or with data_source and data_target."""
    data_source: str = "src"
    """Ending of the source files in `data`, for instance lc.norm.tok.de.gz."""
    data_target: str = "tgt"
    """Ending of the target files in `data`."""
    valid_fraction: Fraction = 0.05
    """Share of train that is held out where there are no validation pairs."""
    valid_links: File | None = None
    """Gold word alignments of the validation pairs, a line a pair: Pharaoh links such as 0-0 1p2, words from 0."""
    test_links: File | None = None
    """The same of the test pairs."""
    segmentation: Literal["bpe", "words"] = "bpe"
    """bpe: a joint SentencePiece model. words: what stands between spaces, and text with "@@ " already in it."""
    vocabulary_size: Positive = 8000
    """Entries of the joint BPE, or the most entries of each side's vocabulary."""
    normalization: Literal["NFKC", "NFC", "none"] = "NFKC"
    """Unicode normal form of the text."""
    max_length: Positive = 60
    """Longest sentence in tokens; longer training pairs are left out and counted, other sentences are cut."""

    @property
    def has_training_pairs(self):
        return self.data is not None or super().has_training_pairs


@dataclasses.dataclass
class NetworkOptions:
    """Network"""

    embedding_width: Positive = 128
    """Width of the word vectors."""
    encoder_units: Positive = 128
    """Width of each LSTM in each direction, of the encoder and of the inference network."""
    units: Positive = 256
    """Width of the decoder and of the emission."""
    num_layers: Positive = 1
    """Layers of the encoder, the decoder and the inference network."""
    attention_units: Positive = 128
    """Width of the score."""
    dropout: Dropout = 0.2
    """Of word vectors, between layers, and before the words."""
    initial_range: NotNegativeFloat = 0.0
    """Weights and biases start from U[-r, r], but for BAM's prior network and the forget gates' biases of 1 (drawn too,
    as by the authors' code, they learn more slowly); 0 for Keras's own initializers."""


@dataclasses.dataclass
class AlignmentOptions(BayesianOptions):
    """Latent alignments"""

    baseline: Literal["soft", "moving_average", "none"] = "soft"
    """What is subtracted from the value of a draw, in models with a score function."""
    tau: PositiveFloat = 0.5
    """Temperature of variational_gumbel, and of a relaxed gumbel_softmax."""
    relaxed: Literal["dirichlet", "lognormal", "gumbel_softmax"] = "dirichlet"
    """Distribution of the model relaxed."""
    warm_start: NotNegative = 0
    """Steps of the model relaxed that draw from p and pay no KL (algorithm 2 of Deng et al. 2018). The loss on
    validation of the epochs before their end, of a q that has not been trained, counts for nothing."""
    annealing_steps: NotNegative = 0
    """Steps over which the KL of models with a posterior grows to its full weight; 0 for full weight from the start, as
    in the paper, where a small model may keep p and q nearly uniform."""


@dataclasses.dataclass
class SearchOptions:
    """Beam search"""

    num_beams: Positive = 10
    """Beams."""
    length_penalty: NotNegativeFloat = 1.0
    """alpha of Wu et al. 2016."""


@dataclasses.dataclass
class ReportOptions(DecodeOptions):
    """Reports"""

    num_decoded: Positive = 200
    """How many validation sentences are translated then, the first ones, greedily."""


# Defaults for two CPU cores and a few minutes on the embedded pairs; the alignment's values are the papers'.
@dataclasses.dataclass
class Options:
    """Train a translation model on parallel text; without data options, on an embedded set with known alignments."""

    model: Literal[tuple(MODELS)] = "marginal"
    """One of the models of Deng et al. 2018 or Fan et al. 2020."""
    run: RunOptions = group(RunOptions, out="runs/nmt")
    text: TextOptions = group(TextOptions)
    network: NetworkOptions = group(NetworkOptions)
    alignment: AlignmentOptions = group(AlignmentOptions)
    fit: FitOptions = group(
        FitOptions,
        batch_size=16,
        epochs=8,
        learning_rate=2e-3,
        schedule="plateau",
    )
    search: SearchOptions = group(SearchOptions)
    reports: ReportOptions = group(ReportOptions)

    def check(self):
        steps, warm_start = self.fit.max_steps, self.alignment.warm_start
        if self.model == "relaxed" and steps is not None and steps <= warm_start:
            raise InputError(
                f"--warm-start: must be below --max-steps {steps}, or q is not trained. Received: {warm_start}"
            )


@dataclasses.dataclass
class EvaluateNmt(EvaluatePairsOptions):
    """Report on a part of the data of a run, or on other pairs, under one or several inferences."""

    links: File | None = None
    """Gold word alignments of other pairs, a line a pair."""
    inference: tuple[str, ...] = ()
    """exact, kmax:K, soft or sample:n, one or several; the model's own where none is named."""
    k_curve: NotNegative = 0
    """Also log p for K = 1 ... this, the alignments summed over."""

    def check(self):
        super().check()
        if self.links is not None and self.source is None and self.table is None:
            raise InputError("--links: those of a run's own pairs are named when it is trained; see --test-links.")

    def check_run(self, options):
        """Check what depends on the model of the run."""
        model = MODELS[options.model]
        for name in self.inference:
            Inference.parse(name, model.is_continuous)
        if self.k_curve and model.is_continuous:
            raise InputError(f"--k-curve: the alignments of {options.model} are continuous.")


@dataclasses.dataclass
class GenerateNmt(GenerateOptions):
    """Translate lines of text, from a file or standard input."""

    inference: str | None = None
    """exact, kmax:K, soft or sample:n; the model's own where it is left out. Draws depend on the lines beside one."""
    num_beams: Positive | None = None
    """Beams instead of the run's."""

    def check_run(self, options):
        """Check what depends on the model of the run."""
        if self.inference is not None:
            Inference.parse(self.inference, MODELS[options.model].is_continuous)


@dataclasses.dataclass
class ExportNmt(ExportOptions):
    """Write the SavedModel of a run, with the endpoints generate, n_best and score."""

    inference: str | None = None
    """exact, kmax:K or soft; the model's own where it is left out, and soft for relaxed, whose own has draws."""

    def check_run(self, options):
        """Check what depends on the model of the run."""
        name = self.inference or MODELS[options.model].inference_without_draws
        if Inference.parse(name, MODELS[options.model].is_continuous).kind == "sample":
            raise InputError(f"--inference: an export has no draws; choose exact, kmax:K or soft. Received: {name}")


@dataclasses.dataclass
class CompareNmt(CompareOptions):
    """Train models with several seeds on the same data, and print tables with differences and intervals."""

    out: str = "runs/nmt_compare"
    models: tuple[str, ...] = ("soft", "marginal", "variational_sample", "variational_enum", "wc")
    baseline: str = "soft"
    layout: tuple[Literal["deng", "fan"], ...] = ()
    """Also the tables of Deng et al. 2018, of Fan et al. 2020."""
    inference: tuple[str, ...] = ()
    """Also cross every model with these inferences, for instance exact kmax:5 soft (Table 2 of Deng et al. 2018)."""
    split: Literal["valid", "test"] = "test"
    """Part of the data of the crossing."""
    k_curve: NotNegative = 0
    """Also log p for K = 1 ... this of the crossing."""

    def check(self):
        super().check()
        if not self.inference and (self.k_curve or self.split != "test"):
            raise InputError("--k-curve and --split are those of the crossing: name its --inference.")
        for name in self.inference:
            Inference.parse(name)


PROGRAM = Program(
    "applications.nmt",
    {
        "train": Options,
        "evaluate": EvaluateNmt,
        "generate": GenerateNmt,
        "compare": CompareNmt,
        "export": ExportNmt,
    },
    may_change=("num_beams", "length_penalty"),
    codec_options=("segmentation", "vocabulary_size", "lowercase", "normalization"),
)
