"""Options of the variational encoder-decoder. The folder presets/ has the presets, model.py the parts of a model."""

import dataclasses
from typing import Literal

from applications.common import options as common
from applications.common.bayesian_options import DrawnOptions
from applications.common.errors import InputError
from applications.common.program import Program
from applications.text.options import DecodeOptions, EvaluatePairsOptions, PairOptions, VocabularySize

DETERMINISTIC = ("ded", "ded_dattn")
VARIATIONAL = ("ved", "ved_dattn", "ved_vattn_0", "ved_vattn_mean", "ved_wc", "ved_lc", "ved_dirichlet", "ved_position")
# Names that earlier versions had for a model with other values of its options.
OLD_MODELS = {
    "rnnsearch": {"model": "ded_dattn", "residual_stack": True},
    "ved_hard": {"model": "ved_position", "objective": "hard"},
    "ved_marginal": {"model": "ved_position", "objective": "marginal"},
    "vae": {"model": "ved", "autoencoder": True},
    "vae_hidden_init": {"model": "ved", "autoencoder": True, "initial_state": True},
}


@dataclasses.dataclass
class TextOptions(PairOptions):
    """Pairs of sentences; without them, facts of the Unicode CLDR and questions about them"""

    max_valid_pairs: common.Positive | None = 2000
    """Use that many validation pairs at most, where they are cut from train."""
    max_test_sources: common.Positive | None = None
    """Report on that many different test sources, the first ones."""
    autoencoder: bool = False
    """Read the target as the source, too, as in the pilot study."""
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
    """Pretrained word vectors: GloVe or word2vec text, or .npz with its words in words*.txt beside it."""
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
    initial_state: bool = False
    """Start the decoder from the encoder's last state; ded and ded_dattn always do."""
    residual_stack: bool = False
    """Decode with three residual layers and additive attention, whose query is the previous state (RNNsearch)."""
    word_dropout: common.Dropout = 0.25
    """Share of the target words that the decoder reads as unknown."""
    encoder_dropout: common.Dropout = 0.0
    """Dropout of the source's word vectors."""


@dataclasses.dataclass
class VariationalOptions:
    """Random variables"""

    gamma_a: common.NotNegativeFloat = 0.1
    """Factor on the KL of the attention (eq. 8), whatever is drawn of it."""
    objective: Literal["marginal", "hard"] = "marginal"
    """What ved_position maximises: the exact log E_p[p] of the words, or E_p[log p] with a score function."""
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

    model: Literal[(*DETERMINISTIC, *VARIATIONAL)] = "ved_vattn_mean"
    """A model of the paper's tables, or its network with another attention."""
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


@dataclasses.dataclass
class GenerateVed(common.GenerateOptions):
    """Turn lines of text into generated lines, from a file or standard input."""

    num_samples: common.NotNegative = 0
    """0 for one sentence at the posterior means; otherwise that many draws per line, separated by tabs."""
    seed: common.Seed32 = 0
    """Seed of the draws."""

    def check_run(self, options):
        if self.num_samples and options.model in DETERMINISTIC:
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


PROGRAM = Program(
    "applications.ved",
    {
        "train": Options,
        "evaluate": EvaluatePairsOptions,
        "generate": GenerateVed,
        "compare": CompareVed,
        "export": common.ExportOptions,
    },
    codec_options=("lowercase",),
    old_models=OLD_MODELS,
)
