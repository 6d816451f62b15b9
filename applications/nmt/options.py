"""Options of neural machine translation with latent alignments. The presets are in presets/."""

import dataclasses
from typing import Literal

from applications.common import options as common
from applications.common.bayesian_options import BayesianOptions, PosteriorOptions
from applications.common.errors import InputError
from applications.common.program import Program
from applications.nmt.inference import Inference
from applications.text.options import (
    DecodeOptions,
    EvaluatePairsOptions,
    PairOptions,
    UncertaintyOptions,
    VocabularySize,
)

LATENT = ("soft", "marginal", "hard_enum", "hard_sample", "relaxed")
VARIATIONAL = ("variational_enum", "variational_sample", "variational_gumbel", "variational_wake_sleep")
BAYESIAN = ("wc", "lc", "dirichlet", "gaussian_0", "gaussian_mean")
ModelName = Literal[(*LATENT, *VARIATIONAL, *BAYESIAN)]


@dataclasses.dataclass
class TextOptions(PairOptions):
    """Pairs of sentences (default: built-in pairs with gold alignments)"""

    built_in: Literal["sentences", "amounts"] = "sentences"
    """Built-in pairs for runs without data files. sentences: random sentences of a small grammar. amounts: longer
    sentences about dates, times, numbers and prices."""
    data: common.Folder | None = None
    """Folder with train.src, train.tgt and, optionally, valid and test files; data_source and data_target set other
    endings."""
    data_source: str = "src"
    """Ending of the source files in `data`, such as lc.norm.tok.de.gz."""
    data_target: str = "tgt"
    """Ending of the target files in `data`."""
    valid_links: common.File | None = None
    """Gold word alignments of the validation pairs, one line per pair: Pharaoh links such as 0-0 1p2, with words
    numbered from 0."""
    test_links: common.File | None = None
    """Gold word alignments of the test pairs."""
    segmentation: Literal["bpe", "words"] | None = None
    """bpe: a joint SentencePiece model. words: split at spaces. none: words for built-in pairs, bpe for files."""
    vocabulary_size: VocabularySize = 8000
    """Size of the joint BPE vocabulary, or maximum size of each side's word vocabulary."""
    max_length: common.Positive = 60
    """Maximum sentence length in tokens; longer training pairs are dropped, other sentences are truncated."""

    @property
    def has_training_pairs(self):
        return self.data is not None or super().has_training_pairs


@dataclasses.dataclass
class NetworkOptions:
    """Network"""

    embedding_width: common.Positive = 128
    """Width of the word vectors."""
    encoder_units: common.Positive = 128
    """Width of each LSTM of the encoder and the inference network, in each direction."""
    units: common.Positive = 256
    """Width of the decoder and of the emission."""
    num_layers: common.Positive = 1
    """Number of layers of the encoder, the decoder and the inference network."""
    emission: Literal["states", "words"] | None = None
    """Source vectors that predict the next word. states: encoder states, as published; they also encode adjacent words,
    so an alignment may be off by a word. words: word vectors. none: words for built-in pairs, states for files."""
    attention_units: common.Positive = 128
    """Width of the additive attention score."""
    dropout: common.Dropout = 0.2
    """Dropout rate for the word vectors, between layers and before the output."""
    initial_range: common.NotNegativeFloat = 0.0
    """r: initialise weights and biases from U[-r, r], but not BAM's prior network; biases of forget gates start at 1
    (U[-r, r] in the authors' code, which learns more slowly). 0: Keras's default initializers."""


@dataclasses.dataclass
class AlignmentOptions(PosteriorOptions, BayesianOptions):
    """Latent alignments"""

    baseline: Literal["soft", "moving_average", "none"] = "soft"
    """Baseline that score-function estimators subtract from the log-likelihood of a sample."""


@dataclasses.dataclass
class SearchOptions:
    """Beam search"""

    num_beams: common.Positive = 10
    """Number of beams."""
    length_penalty: common.NotNegativeFloat = 1.0
    """Exponent alpha of the length penalty of Wu et al. 2016."""


@dataclasses.dataclass
class Options:
    """Train a translation model on parallel text, by default on built-in pairs with gold alignments."""

    model: ModelName = "marginal"
    """A model of Deng et al. 2018 or Fan et al. 2020, or the same network with a different attention mechanism."""
    run: common.RunOptions = common.group(common.RunOptions, out="runs/nmt")
    text: TextOptions = common.group(TextOptions, valid_fraction=0.05)
    network: NetworkOptions = common.group(NetworkOptions)
    alignment: AlignmentOptions = common.group(AlignmentOptions)
    fit: common.FitOptions = common.group(
        common.FitOptions, batch_size=16, epochs=8, learning_rate=2e-3, schedule="plateau"
    )
    search: SearchOptions = common.group(SearchOptions)
    reports: DecodeOptions = common.group(DecodeOptions, num_decoded=200)

    @property
    def resolved(self):
        """Values of the options whose defaults depend on the data."""
        defaults = ("bpe", "states") if self.text.has_training_pairs else ("words", "words")
        return {"segmentation": self.text.segmentation or defaults[0], "emission": self.network.emission or defaults[1]}


@dataclasses.dataclass
class EvaluateNmt(UncertaintyOptions, EvaluatePairsOptions):
    """Compute the metrics of a run on a split of its data, or on other pairs."""

    links: common.File | None = None
    """Gold word alignments of the pairs in --source and --target or in --table, one line per pair."""
    inference: str | None = None
    """exact: sum over all alignments. kmax:K: sum over the K most probable ones. soft: use the expected context.
    sample:n: average over n samples. The default depends on the model."""

    def check(self):
        EvaluatePairsOptions.check(self)
        UncertaintyOptions.check(self)
        _check_inference(self.inference)
        if self.links is not None and not self.names_other:
            raise InputError("--links requires --source or --table. For the test split, train with --test-links.")


@dataclasses.dataclass
class GenerateNmt(UncertaintyOptions, common.GenerateOptions):
    """Translate lines of text, from a file or standard input."""

    inference: str | None = None
    """Inference, as for `evaluate`: exact, kmax:K, soft or sample:n. The samples for a line depend on its batch."""
    num_beams: common.Positive | None = None
    """Number of beams; the default is the value of the run."""

    def check(self):
        super().check()
        _check_inference(self.inference)


@dataclasses.dataclass
class CompareNmt(common.CompareOptions):
    """Train models with several seeds. Print their metrics and the differences from the baseline, with 95% intervals.
    The options of `train` are also accepted, and apply to every run."""

    out: str = "runs/nmt_compare"
    models: tuple[str, ...] = ("soft", "marginal", "variational_sample", "variational_enum", "wc")
    baseline: str = "soft"
    layout: tuple[Literal["deng", "fan", "uncertainty"], ...] = ()
    """Also print the tables of Deng et al. 2018 or Fan et al. 2020, or the quality of the most certain translations."""


def _check_inference(name):
    if name is not None:
        Inference.parse(name)


PROGRAM = Program(
    "applications.nmt",
    {
        "train": Options,
        "evaluate": EvaluateNmt,
        "generate": GenerateNmt,
        "compare": CompareNmt,
        "export": common.ExportOptions,
    },
    may_change=("num_beams", "length_penalty"),
    codec_options=("segmentation", "vocabulary_size", "lowercase"),
)
