"""Options of the variational encoder-decoder, and its models. The presets stand in presets/."""

import dataclasses
from typing import Literal

from applications.common import options as common
from applications.common.bayesian_options import DrawnOptions
from applications.common.errors import InputError
from applications.common.program import Program
from applications.text.options import DecodeOptions, EvaluatePairsOptions, PairOptions, VocabularySize


@dataclasses.dataclass(frozen=True)
class Model:
    """One line of the paper's tables: the parts of a model.

    Attributes:
        latent: Whether there is a z.
        attention: `None`; "deterministic"; "gaussian", a drawn vector; "weibull", "lognormal" or "dirichlet", drawn
            weights with a contextual prior; "hard" or "marginal", a latent position.
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
    def objective(self):
        """Words of the `keras_vattn.LatentObjective` of a latent position, or `None`."""
        return {"hard": "hard/sample", "marginal": "marginal"}.get(self.attention)

    @property
    def stochastic(self):
        return self.latent or self.attention not in (None, "deterministic")

    @property
    def num_layers(self):
        return 3 if self.residual_stack else 1


# Deterministic models start from the encoder's state, variational ones from zeros, as in the published code.
MODELS = {
    "ded": Model(initial_state=True),
    "ded_dattn": Model(attention="deterministic", initial_state=True),
    "ved": Model(latent=True),
    "ved_dattn": Model(latent=True, attention="deterministic"),
    "ved_vattn_0": Model(latent=True, attention="gaussian", prior="standard"),
    "ved_vattn_mean": Model(latent=True, attention="gaussian", prior="mean"),
    "ved_wc": Model(latent=True, attention="weibull"),
    "ved_lc": Model(latent=True, attention="lognormal"),
    "ved_dirichlet": Model(latent=True, attention="dirichlet"),
    "ved_hard": Model(latent=True, attention="hard"),
    "ved_marginal": Model(latent=True, attention="marginal"),
    "rnnsearch": Model(attention="deterministic", initial_state=True, residual_stack=True),
    "vae": Model(latent=True, autoencoder=True),
    "vae_hidden_init": Model(latent=True, autoencoder=True, initial_state=True),
}


@dataclasses.dataclass
class TextOptions(PairOptions):
    """Pairs of sentences; without them, facts of the Unicode CLDR and questions about them"""

    max_valid_pairs: common.Positive | None = 2000
    """Use that many validation pairs at most, where they are cut from train."""
    max_test_sources: common.Positive | None = None
    """Report on that many different test sources, the first ones."""
    source_vocabulary_size: VocabularySize = 8000
    """Most words of the source side."""
    target_vocabulary_size: VocabularySize = 8000
    """Most words of the target side."""
    min_count: common.Positive = 1
    """A rarer word of the training pairs is an unknown one."""
    max_source_length: common.Positive = 40
    """Longest source in tokens; longer ones are cut."""
    max_target_length: common.Positive = 25
    """Longest target in tokens; longer ones are cut."""
    embeddings: common.File | None = None
    """Pretrained word vectors: GloVe text, word2vec text or .bin, or .npz with its words in words*.txt beside it."""
    train_embeddings: bool = True
    """Whether pretrained vectors are trained; others always are."""


@dataclasses.dataclass
class NetworkOptions:
    """Network"""

    embedding_width: common.Positive = 64
    """Width of the word vectors."""
    encoder_units: common.Positive = 64
    """Width of the encoder LSTM in each direction."""
    units: common.Positive = 96
    """Width of the decoder."""
    latent_units: common.Positive = 32
    """Width of z."""
    attention_size: common.Positive = 96
    """Width of W_att, which joins the decoder's output and the context."""
    decoder_form: Literal["code", "printed"] = "code"
    """code: query h_j, logits W_out W_att [h_j; a_j], a_j fed at j + 1. printed: query h_(j-1), a_j fed at j."""
    word_dropout: common.Dropout = 0.25
    """Share of the target words that the decoder reads as unknown."""
    encoder_dropout: common.Dropout = 0.0
    """Dropout of the source's word vectors."""


@dataclasses.dataclass
class VariationalOptions:
    """Random variables"""

    gamma_a: common.NotNegativeFloat = 0.1
    """Factor on the KL of the attention (eq. 8), whatever is drawn of it."""
    free_bits: common.NotNegativeFloat = 0.5
    """Nats per dimension of z that the KL leaves alone; with 0.1 the default model hardly reads z."""
    annealing_center: float = 300.0
    """Step at which lambda_KL is one half."""
    annealing_slope: common.PositiveFloat = 0.02
    """How fast it grows."""
    annealing_end: common.Share = 0.3
    """Largest lambda_KL."""


@dataclasses.dataclass
class ReportOptions(DecodeOptions):
    """Reports"""

    num_draws: common.Positive = 10
    """Draws per input in the diversity metrics."""


# Defaults for two CPU cores and a few minutes, chosen by hand on the built-in pairs; word_dropout, gamma_a and
# num_draws are the paper's.
@dataclasses.dataclass
class Options:
    """Train a variational encoder-decoder on pairs of sentences; without data options, on built-in pairs."""

    model: Literal[tuple(MODELS)] = "ved_vattn_mean"
    """One of the paper's tables; its network with another attention; rnnsearch; vae and vae_hidden_init of the pilot
    study."""
    run: common.RunOptions = common.group(common.RunOptions, out="runs/ved")
    text: TextOptions = common.group(TextOptions)
    network: NetworkOptions = common.group(NetworkOptions)
    variational: VariationalOptions = common.group(VariationalOptions)
    drawn: DrawnOptions = common.group(DrawnOptions, prior_beta=1.0)
    fit: common.FitOptions = common.group(
        common.FitOptions,
        batch_size=64,
        epochs=12,
        learning_rate=0.005,
        schedule="exponential",
        learning_rate_decay=0.75,
        keep="last",
    )
    reports: ReportOptions = common.group(ReportOptions)

    def check(self):
        if MODELS[self.model].objective and self.network.decoder_form == "printed":
            raise InputError(f"--decoder-form: {self.model} reads what it attends to beside h_j, which is code.")


@dataclasses.dataclass
class EvaluateVed(EvaluatePairsOptions):
    """Report on a part of the data of a run, or on other pairs, and trace quality against diversity."""

    max_sources: common.Positive | None = None
    """Decode that many different sources, the first ones."""
    latent_temperatures: tuple[common.NotNegativeFloat, ...] = ()
    """Also sample at these factors on sigma, for instance 0 0.5 1 1.5; drawn weights are drawn at all of them."""
    word_temperatures: tuple[common.PositiveFloat, ...] = ()
    """Also draw words at these temperatures, the latents at their means."""

    def check_run(self, options):
        if self.latent_temperatures and not MODELS[options.model].stochastic:
            raise InputError(f"--latent-temperatures: the model {options.model} draws nothing.")


@dataclasses.dataclass
class GenerateVed(common.GenerateOptions):
    """Turn lines of text into generated lines, from a file or standard input."""

    num_samples: common.NotNegative = 0
    """0 for one sentence at the posterior means; otherwise that many draws per line, separated by tabs."""
    seed: common.Seed32 = 0
    """Seed of the draws."""

    def check_run(self, options):
        if self.num_samples and not MODELS[options.model].stochastic:
            raise InputError(f"--num-samples: the model {options.model} draws nothing.")


@dataclasses.dataclass
class CompareVed(common.CompareOptions):
    """Train models with several seeds, and print tables with differences and intervals. Options
    of `train` are options of every run."""

    out: str = "runs/ved_compare"
    models: tuple[str, ...] = ("ded_dattn", "ved_dattn", "ved_vattn_0", "ved_vattn_mean")
    baseline: str = "ved_dattn"
    layout: tuple[Literal["table_1", "table_2", "table_4"], ...] = ()
    """Also the paper's tables."""
    latent_temperatures: tuple[common.NotNegativeFloat, ...] = ()
    """Also trace quality against diversity at these factors on sigma, for every model that draws."""
    word_temperatures: tuple[common.PositiveFloat, ...] = ()
    """The same, drawing words instead of latents: the control."""


PROGRAM = Program(
    "applications.ved",
    {
        "train": Options,
        "evaluate": EvaluateVed,
        "generate": GenerateVed,
        "compare": CompareVed,
        "export": common.ExportOptions,
    },
    codec_options=("lowercase",),
)
