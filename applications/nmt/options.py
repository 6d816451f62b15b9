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

# `MODELS` in model.py says what each of them is.
LATENT = ("soft", "marginal", "hard_enum", "hard_sample", "relaxed")
VARIATIONAL = ("variational_enum", "variational_sample", "variational_gumbel", "variational_wake_sleep")
BAYESIAN = ("wc", "lc", "dirichlet", "gaussian_0", "gaussian_mean")
ModelName = Literal[(*LATENT, *VARIATIONAL, *BAYESIAN)]


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
    valid_links: common.File | None = None
    """Gold word alignments of the validation pairs, a line a pair: Pharaoh links such as 0-0 1p2, words from 0."""
    test_links: common.File | None = None
    """Gold word alignments of the test pairs."""
    segmentation: Literal["bpe", "words"] | None = None
    """bpe: a joint SentencePiece model. words: tokens between spaces. none: words for built-in pairs, bpe for files."""
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

    model: ModelName = "marginal"
    """One of the models of Deng et al. 2018 or Fan et al. 2020, or one of the same network with another attention."""
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
        """The values of options whose default depends on the data."""
        defaults = ("bpe", "states") if self.text.has_training_pairs else ("words", "words")
        return {"segmentation": self.text.segmentation or defaults[0], "emission": self.network.emission or defaults[1]}


@dataclasses.dataclass
class EvaluateNmt(UncertaintyOptions, EvaluatePairsOptions):
    """Report on a part of the data of a run, or on other pairs."""

    links: common.File | None = None
    """Gold word alignments of other pairs, a line a pair."""
    inference: str | None = None
    """exact, kmax:K, soft or sample:n; the model's own where it is left out."""

    def check(self):
        EvaluatePairsOptions.check(self)
        UncertaintyOptions.check(self)
        _check_inference(self.inference)
        if self.links is not None and not self.names_other:
            raise InputError("--links: a run's own pairs have their links from training; see --test-links.")


@dataclasses.dataclass
class GenerateNmt(UncertaintyOptions, common.GenerateOptions):
    """Translate lines of text, from a file or standard input."""

    inference: str | None = None
    """exact, kmax:K, soft or sample:n; the model's own where it is left out. Draws depend on the lines beside one."""
    num_beams: common.Positive | None = None
    """Number of beams; the run's where it is left out."""

    def check(self):
        super().check()
        _check_inference(self.inference)


@dataclasses.dataclass
class CompareNmt(common.CompareOptions):
    """Train models with several seeds, and print tables with differences and intervals. Options
    of `train` are options of every run."""

    out: str = "runs/nmt_compare"
    models: tuple[str, ...] = ("soft", "marginal", "variational_sample", "variational_enum", "wc")
    baseline: str = "soft"
    layout: tuple[Literal["deng", "fan", "uncertainty"], ...] = ()
    """Also the tables of Deng et al. 2018 or Fan et al. 2020, or the quality of the most certain translations."""


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
