"""Options of the variational encoder-decoder, and its models. The presets stand in presets/."""

import dataclasses
from typing import Annotated, Literal

from applications.common.errors import InputError
from applications.common.options import (
    Bound,
    CompareOptions,
    Dropout,
    ExportOptions,
    File,
    FitOptions,
    GenerateOptions,
    NotNegative,
    NotNegativeFloat,
    Positive,
    PositiveFloat,
    RunOptions,
    Seed32,
    Share,
    group,
)
from applications.common.program import Program
from applications.text.options import DecodeOptions, EvaluatePairsOptions, PairOptions

VocabularySize = Annotated[int, Bound("must be more than the 4 special tokens", lambda x: x > 4)]


@dataclasses.dataclass(frozen=True)
class Model:
    """One line of the paper's tables: which parts a model has.

    Attributes:
        latent: Whether there is a z.
        attention: `None`, "deterministic" or "gaussian".
        prior: Prior of the Gaussian attention, "standard" or "mean".
        initial_state: Whether the encoder's last state starts the decoder.
        autoencoder: Whether the source is the target (the pilot study).
        residual_stack: Whether the decoder is the additive, previous-state, residual one of Bahdanau.
    """

    latent: bool = False
    attention: str | None = None
    prior: str = "standard"
    initial_state: bool = False
    autoencoder: bool = False
    residual_stack: bool = False

    @property
    def stochastic(self):
        return self.latent or self.attention == "gaussian"


# Deterministic models start from the encoder's state, variational ones from zeros, as in the published code.
MODELS = {
    "ded": Model(initial_state=True),
    "ded_dattn": Model(attention="deterministic", initial_state=True),
    "ved": Model(latent=True),
    "ved_dattn": Model(latent=True, attention="deterministic"),
    "ved_vattn_0": Model(latent=True, attention="gaussian", prior="standard"),
    "ved_vattn_mean": Model(latent=True, attention="gaussian", prior="mean"),
    "rnnsearch": Model(attention="deterministic", initial_state=True, residual_stack=True),
    "vae": Model(latent=True, autoencoder=True),
    "vae_hidden_init": Model(latent=True, autoencoder=True, initial_state=True),
}


@dataclasses.dataclass
class TextOptions(PairOptions):
    """Pairs of sentences; without them, facts of the Unicode CLDR and questions about them"""

    max_valid_pairs: Positive | None = 2000
    """Use that many validation pairs at most, where they are cut from train."""
    max_test_sources: Positive | None = None
    """Report on that many different test sources, the first ones."""
    split_punctuation: bool = True
    """Every punctuation mark a token of its own; off for text that is tokenised already."""
    source_vocabulary_size: VocabularySize = 8000
    """Most words of the source side."""
    target_vocabulary_size: VocabularySize = 8000
    """Most words of the target side."""
    min_count: Positive = 1
    """A rarer word of the training pairs is an unknown one."""
    max_source_length: Positive = 40
    """Longest source in tokens; longer ones are cut."""
    max_target_length: Positive = 25
    """Longest target in tokens; longer ones are cut."""
    embeddings: File | None = None
    """Pretrained word vectors: GloVe text, word2vec text or .bin, or .npz with its words in words*.txt beside it."""
    train_embeddings: bool = True
    """Whether pretrained vectors are trained; others always are."""


@dataclasses.dataclass
class NetworkOptions:
    """Network"""

    embedding_width: Positive = 64
    """Width of the word vectors."""
    encoder_units: Positive = 64
    """Width of the encoder LSTM in each direction."""
    units: Positive = 96
    """Width of the decoder."""
    latent_units: Positive = 32
    """Width of z."""
    attention_size: Positive = 96
    """Width of W_att, which joins the decoder's output and the context."""
    decoder_form: Literal["code", "printed"] = "code"
    """code: query h_j, logits W_out W_att [h_j; a_j], a_j fed at j + 1. printed: query h_(j-1), a_j fed at j."""
    word_dropout: Dropout = 0.25
    """Share of the target words that the decoder reads as unknown."""
    encoder_dropout: Dropout = 0.0
    """Of the source's word vectors."""


@dataclasses.dataclass
class VariationalOptions:
    """Random variables"""

    gamma_a: NotNegativeFloat = 0.1
    """Factor on the KL of the attention (eq. 8)."""
    free_bits: NotNegativeFloat = 0.1
    """Nats per dimension of z that the KL leaves alone; with 0 the default model ends with 0.05 nats in z, unused."""
    annealing_center: float = 300.0
    """Step at which lambda_KL is one half."""
    annealing_slope: PositiveFloat = 0.02
    """How fast it grows."""
    annealing_end: Share = 0.3
    """Largest lambda_KL."""


@dataclasses.dataclass
class ReportOptions(DecodeOptions):
    """Reports"""

    num_draws: Positive = 10
    """Draws per input in the diversity metrics."""


# Defaults for two CPU cores and a few minutes, chosen by hand on the embedded pairs; word_dropout, gamma_a and
# num_draws are the paper's.
@dataclasses.dataclass
class Options:
    """Train a variational encoder-decoder on pairs of sentences; without data options, on an embedded set."""

    model: Literal[tuple(MODELS)] = "ved_vattn_mean"
    """One of the paper's tables, rnnsearch, or vae and vae_hidden_init of the pilot study."""
    run: RunOptions = group(RunOptions, out="runs/ved")
    text: TextOptions = group(TextOptions)
    network: NetworkOptions = group(NetworkOptions)
    variational: VariationalOptions = group(VariationalOptions)
    fit: FitOptions = group(
        FitOptions,
        batch_size=64,
        epochs=8,
        learning_rate=0.005,
        schedule="exponential",
        learning_rate_decay=0.75,
        keep="last",
    )
    reports: ReportOptions = group(ReportOptions)


@dataclasses.dataclass
class EvaluateVed(EvaluatePairsOptions):
    """Report on a part of the data of a run, or on other pairs, and trace quality against diversity."""

    max_sources: Positive | None = None
    """Decode that many different sources, the first ones."""
    latent_temperatures: tuple[NotNegativeFloat, ...] = ()
    """Also sample at these factors on sigma, for instance 0 0.5 1 1.5."""
    word_temperatures: tuple[PositiveFloat, ...] = ()
    """Also draw words at these temperatures, the latents at their means."""
    curves_only: bool = False
    """Leave out everything but the curves."""

    def check(self):
        super().check()
        if self.curves_only and not (self.latent_temperatures or self.word_temperatures):
            raise InputError("--curves-only: name --latent-temperatures or --word-temperatures.")

    def check_run(self, options):
        """Check what depends on the model of the run."""
        if self.latent_temperatures and not MODELS[options.model].stochastic:
            raise InputError(f"--latent-temperatures: the model {options.model} draws nothing.")


@dataclasses.dataclass
class GenerateVed(GenerateOptions):
    """Turn lines of text into generated lines, from a file or standard input."""

    num_samples: NotNegative = 0
    """0 for one sentence at the posterior means; otherwise that many draws per line, separated by tabs."""
    num_beams: Positive = 1
    """Beams of the one sentence; 1 is greedy."""
    length_penalty: NotNegativeFloat = 0.0
    """Of the beam search (Wu et al. 2016)."""
    seed: Seed32 = 0
    """Of the draws."""

    def check(self):
        if self.num_beams > 1 and self.num_samples:
            raise InputError("--num-beams: draws are decoded greedily; leave out one of --num-beams and --num-samples.")

    def check_run(self, options):
        """Check what depends on the model of the run."""
        if self.num_samples and not MODELS[options.model].stochastic:
            raise InputError(f"--num-samples: the model {options.model} draws nothing.")


@dataclasses.dataclass
class CompareVed(CompareOptions):
    """Train models with several seeds on the same data, and print tables with differences and intervals."""

    out: str = "runs/ved_compare"
    models: tuple[str, ...] = ("ded_dattn", "ved_dattn", "ved_vattn_0", "ved_vattn_mean")
    baseline: str = "ved_dattn"
    layout: tuple[Literal["table_2", "table_4"], ...] = ()
    """Also the paper's tables."""
    latent_temperatures: tuple[NotNegativeFloat, ...] = ()
    """Also trace quality against diversity at these factors on sigma, for every model that draws."""
    word_temperatures: tuple[PositiveFloat, ...] = ()
    """The same, drawing words instead of latents: the control."""
    curve_sources: Positive = 300
    """Different sources that the curves decode."""


PROGRAM = Program(
    "applications.ved",
    {
        "train": Options,
        "evaluate": EvaluateVed,
        "generate": GenerateVed,
        "compare": CompareVed,
        "export": ExportOptions,
    },
    codec_options=("lowercase", "split_punctuation"),
)
