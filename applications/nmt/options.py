"""Options of neural machine translation with latent alignments, and its models. The presets stand in presets/."""

import dataclasses
from typing import Literal

from applications.common import options as common
from applications.common.bayesian_options import BayesianOptions, PosteriorOptions
from applications.common.errors import InputError
from applications.common.inference import Inference
from applications.common.program import Program
from applications.text.options import (
    DecodeOptions,
    EvaluatePairsOptions,
    PairOptions,
    UncertaintyOptions,
    VocabularySize,
)


@dataclasses.dataclass(frozen=True)
class Model:
    """One line of the papers' tables.

    Attributes:
        title: Name of the model in the papers.
        value: Quantity that training maximises.
        expectation: How its expectation is taken.
        objective: Words of a `keras_vattn.LatentObjective`, or `None` where the decoder's own attention draws weights.
        alignment: Alignment of the decoder's attention where that draws weights; "gaussian" where it draws the attended
            vector; `None` for softmax.
        prior: Prior of the Gaussian vector, "standard" or "mean".
        num_samples: Draws of a word's alignment in training.
    """

    title: str
    value: str
    expectation: str
    objective: str | None = None
    alignment: str | None = None
    prior: str = "standard"
    num_samples: int = 1

    @property
    def needs_posterior(self):
        """Whether training has an inference network that sees the target."""
        return self.alignment == "relaxed" or (self.objective or "").startswith(("elbo", "wake_sleep"))

    @property
    def feeding(self):
        """The context that the decoder is fed: expected under p (Deng et al. 2018), or drawn (Fan et al. 2020)."""
        return "sampled" if self.is_bayesian else "expected"

    @property
    def is_bayesian(self):
        """Whether the decoder draws without an inference network, as BAM does, and predicts at the mean (Fan et al.
        2020, section 3.2)."""
        return self.alignment is not None and not self.needs_posterior

    @property
    def is_continuous(self):
        return self.alignment is not None

    @property
    def inference(self):
        """Name of the inference that the model is reported with: a relaxed alignment has to be sampled (section 4)."""
        return "sample:10" if self.is_continuous and self.needs_posterior else self.inference_without_draws

    def parse(self, name):
        """Return the `Inference` of that name; `InputError` if the model has no such inference."""
        if self.is_bayesian and name != "soft":
            raise InputError(f"--inference: {self.title} predicts at the mean of what it draws, soft. Received: {name}")
        return Inference.parse(name, self.is_continuous)

    @property
    def inference_without_draws(self):
        """Name of the inference of exports, and of translations after an epoch."""
        return "soft" if self.objective == "soft" or self.is_continuous else "exact"


# Titles, values and expectations as Table 1 of Deng et al. 2018 has them; BAM's from Fan et al. 2020, eq. 6. The last
# three are of no paper on translation: other drawn weights, and the drawn vector of Bahuleyan et al. 2018.
_ELBO, _VARIATIONAL = "E_q[log p] - KL", "Variational Attention"
_IMPORTANCE = "log p, importance sampled"
MODELS = {
    "soft": Model("Soft Attention", "log p(y | E[z])", "-", "soft"),
    "marginal": Model("Marginal Likelihood", "log E[p]", "Enum", "marginal"),
    "hard_enum": Model("Hard Attention", "E_p[log p]", "Enum", "hard/enumerate"),
    "hard_sample": Model("Hard Attention", "E_p[log p]", "Sample", "hard/sample"),
    "relaxed": Model("Variational Relaxed Attention", _ELBO, "Sample", alignment="relaxed"),
    "variational_enum": Model(_VARIATIONAL, _ELBO, "Enum", "elbo/enumerate"),
    "variational_sample": Model(_VARIATIONAL, _ELBO, "Sample", "elbo/sample"),
    "variational_gumbel": Model(_VARIATIONAL, _ELBO, "Gumbel-softmax", "elbo/gumbel"),
    "variational_wake_sleep": Model(_VARIATIONAL, _IMPORTANCE, "Wake-sleep", "wake_sleep/sample", num_samples=5),
    "wc": Model("BAM-WC", _ELBO, "Sample", alignment="weibull"),
    "lc": Model("BAM-LC", _ELBO, "Sample", alignment="lognormal"),
    "dirichlet": Model("Dirichlet Attention", _ELBO, "Sample", alignment="dirichlet"),
    "gaussian_0": Model("Gaussian Attention, prior 0", _ELBO, "Sample", alignment="gaussian"),
    "gaussian_mean": Model("Gaussian Attention, prior mean", _ELBO, "Sample", alignment="gaussian", prior="mean"),
}


@dataclasses.dataclass
class TextOptions(PairOptions):
    """Pairs of sentences; without them, built-in ones with known alignments"""

    built_in: Literal["sentences", "amounts"] = "sentences"
    """Pairs without files. sentences: of a small grammar, each word beside all others. amounts: longer sentences about
    dates, times, numbers and prices."""
    data: common.Folder | None = None
    """Folder with train, valid and test files, named train.src and train.tgt, or with data_source and data_target."""
    data_source: str = "src"
    """Ending of the source files in `data`, for instance lc.norm.tok.de.gz."""
    data_target: str = "tgt"
    """Ending of the target files in `data`."""
    valid_fraction: common.Fraction = 0.05
    """Share of train that is held out where there are no validation pairs."""
    valid_links: common.File | None = None
    """Gold word alignments of the validation pairs, a line a pair: Pharaoh links such as 0-0 1p2, words from 0."""
    test_links: common.File | None = None
    """Gold word alignments of the test pairs."""
    segmentation: Literal["bpe", "words"] | None = None
    """bpe: a joint SentencePiece model. words: tokens between spaces, of text with "@@ " in it too. none: words
    for built-in pairs, bpe for files."""
    vocabulary_size: VocabularySize = 8000
    """Entries of the joint BPE, or the most entries of each side's vocabulary."""
    max_length: common.Positive = 60
    """Longest sentence in tokens; longer training pairs are left out and counted, other sentences are cut."""

    @property
    def has_training_pairs(self):
        return self.data is not None or super().has_training_pairs


@dataclasses.dataclass
class NetworkOptions:
    """Network"""

    embedding_width: common.Positive = 128
    """Width of the word vectors."""
    encoder_units: common.Positive = 128
    """Width of each LSTM in each direction, of the encoder and of the inference network."""
    units: common.Positive = 256
    """Width of the decoder and of the emission."""
    num_layers: common.Positive = 1
    """Layers of the encoder, the decoder and the inference network."""
    emission: Literal["states", "words"] | None = None
    """Source vectors behind the next word. states: the encoder's states, as published; a state knows its neighbours, so
    the alignment may point beside the word. words: the word vectors. none: words for built-in pairs, states for
    files."""
    attention_units: common.Positive = 128
    """Width of the attention's score, which is additive."""
    dropout: common.Dropout = 0.2
    """Dropout of word vectors, between layers, and before the words."""
    initial_range: common.NotNegativeFloat = 0.0
    """r: weights and biases start from U[-r, r], except BAM's prior network and the forget gates' biases, which start
    at 1 (the authors' code draws these too, and learns more slowly); 0 for Keras's own initializers."""


@dataclasses.dataclass
class AlignmentOptions(PosteriorOptions, BayesianOptions):
    """Latent alignments"""

    baseline: Literal["soft", "moving_average", "none"] = "soft"
    """Subtracted from the value of a draw, in models with a score function."""


@dataclasses.dataclass
class SearchOptions:
    """Beam search"""

    num_beams: common.Positive = 10
    """Number of beams."""
    length_penalty: common.NotNegativeFloat = 1.0
    """alpha of Wu et al. 2016."""


# Defaults for two CPU cores and a few minutes on the built-in pairs; the alignment's values are the papers'.
@dataclasses.dataclass
class Options:
    """Train a translation model on parallel text; without data options, on built-in pairs with known alignments."""

    model: Literal[tuple(MODELS)] = "marginal"
    """One of the models of Deng et al. 2018 or Fan et al. 2020, or one of the same network with another attention."""
    run: common.RunOptions = common.group(common.RunOptions, out="runs/nmt")
    text: TextOptions = common.group(TextOptions)
    network: NetworkOptions = common.group(NetworkOptions)
    alignment: AlignmentOptions = common.group(AlignmentOptions)
    fit: common.FitOptions = common.group(
        common.FitOptions, batch_size=16, epochs=8, learning_rate=2e-3, schedule="plateau"
    )
    search: SearchOptions = common.group(SearchOptions)
    reports: DecodeOptions = common.group(DecodeOptions, num_decoded=200)

    @property
    def resolved(self):
        """The values of options whose default depends on the data."""
        defaults = ("bpe", "states") if self.text.has_training_pairs else ("words", "words")
        return {
            "segmentation": self.text.segmentation or defaults[0],
            "emission": self.network.emission or defaults[1],
        }

    def check(self):
        if MODELS[self.model].needs_posterior:
            self.alignment.check_steps(self.alignment.warm_start if self.model == "relaxed" else 0, self.fit.max_steps)


@dataclasses.dataclass
class EvaluateNmt(UncertaintyOptions, EvaluatePairsOptions):
    """Report on a part of the data of a run, or on other pairs, under one or several inferences."""

    links: common.File | None = None
    """Gold word alignments of other pairs, a line a pair."""
    inference: tuple[str, ...] = ()
    """exact, kmax:K, soft or sample:n, one or several; the model's own where none is named."""
    k_curve: common.NotNegative = 0
    """Also log p for K = 1 ... this, the alignments summed over."""

    def check(self):
        EvaluatePairsOptions.check(self)
        UncertaintyOptions.check(self)
        if self.links is not None and self.source is None and self.table is None:
            raise InputError("--links: a run's own pairs have their links from training; see --test-links.")

    def check_run(self, options):
        model = MODELS[options.model]
        for name in self.inference:
            model.parse(name)
        if self.k_curve and model.is_continuous:
            raise InputError(f"--k-curve: the alignments of {options.model} are continuous.")


@dataclasses.dataclass
class GenerateNmt(UncertaintyOptions, common.GenerateOptions):
    """Translate lines of text, from a file or standard input."""

    inference: str | None = None
    """exact, kmax:K, soft or sample:n; the model's own where it is left out. Draws depend on the lines beside one."""
    num_beams: common.Positive | None = None
    """Number of beams; the run's where it is left out."""

    def check_run(self, options):
        if self.inference is not None:
            MODELS[options.model].parse(self.inference)


@dataclasses.dataclass
class ExportNmt(common.ExportOptions):
    """Write the SavedModel of a run, with the endpoints generate, n_best and score, and uncertain of a model that draws
    its attention."""

    inference: str | None = None
    """exact, kmax:K or soft; the model's own where it is left out, and soft for relaxed, whose own has draws."""

    def check_run(self, options):
        name = self.inference or MODELS[options.model].inference_without_draws
        if MODELS[options.model].parse(name).kind == "sample":
            raise InputError(
                f"--inference: an export searches without draws; choose exact, kmax:K or soft. Received: {name}"
            )


@dataclasses.dataclass
class CompareNmt(common.CompareOptions):
    """Train models with several seeds, and print tables with differences and intervals. Options
    of `train` are options of every run."""

    out: str = "runs/nmt_compare"
    models: tuple[str, ...] = ("soft", "marginal", "variational_sample", "variational_enum", "wc")
    baseline: str = "soft"
    layout: tuple[Literal["deng", "fan", "uncertainty"], ...] = ()
    """Also the tables of Deng et al. 2018 or Fan et al. 2020, or the quality of the most certain translations."""
    num_draws: common.NoneOrSeveral | None = None
    """Draws behind the layout uncertainty; 10 where it is left out."""
    inference: tuple[str, ...] = ()
    """Also cross every model with these inferences, for instance exact kmax:5 soft (Table 2 of Deng et al. 2018)."""
    k_curve: common.NotNegative = 0
    """Also log p of the crossing for K = 1 ... this."""

    def check(self):
        super().check()
        if self.k_curve and not self.inference:
            raise InputError("--k-curve belongs to the crossing: name its --inference.")
        if self.num_draws is not None and "uncertainty" not in self.layout:
            raise InputError("--num-draws belongs to --layout uncertainty.")
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
    codec_options=("segmentation", "vocabulary_size", "lowercase"),
)
