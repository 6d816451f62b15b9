"""Options of the variational encoder-decoder. presets/ contains the paper's values; model.py defines the models."""

import dataclasses
from typing import Literal

from applications.common import options as common
from applications.common.bayesian_options import DrawnOptions
from applications.common.errors import InputError
from applications.common.program import Program
from applications.text.options import DecodeOptions, EvaluatePairsOptions, PairOptions, VocabularySize

DETERMINISTIC = ("ded", "ded_dattn")
VARIATIONAL = ("ved", "ved_dattn", "ved_vattn_0", "ved_vattn_mean", "ved_wc", "ved_lc", "ved_dirichlet", "ved_position")
# Former model names, and the options that replace each name.
OLD_MODELS = {
    "rnnsearch": {"model": "ded_dattn", "residual_stack": True},
    "ved_hard": {"model": "ved_position", "objective": "hard"},
    "ved_marginal": {"model": "ved_position", "objective": "marginal"},
    "vae": {"model": "ved", "autoencoder": True},
    "vae_hidden_init": {"model": "ved", "autoencoder": True, "initial_state": True},
}


@dataclasses.dataclass
class TextOptions(PairOptions):
    """Pairs of sentences (default: built-in statements and questions about Unicode CLDR data)"""

    max_valid_pairs: common.Positive | None = 2000
    """Maximum number of validation pairs to split off the training data."""
    max_test_sources: common.Positive | None = None
    """Report on at most this many distinct test sources, in the order of the file."""
    autoencoder: bool = False
    """Use the target as the source, as in the pilot study of Bahuleyan et al. 2018."""
    source_vocabulary_size: VocabularySize = 8000
    """Maximum size of the source vocabulary."""
    target_vocabulary_size: VocabularySize = 8000
    """Maximum size of the target vocabulary."""
    min_count: common.Positive = 1
    """Minimum number of training occurrences of a word; rarer words are unknown."""
    max_source_length: common.Positive = 40
    """Maximum source length in tokens; longer sources are truncated."""
    max_target_length: common.Positive = 25
    """Maximum target length in tokens; longer targets are truncated."""
    embeddings: common.File | None = None
    """Pretrained word vectors: a GloVe or word2vec text file, or an .npz file next to a words*.txt file."""
    train_embeddings: bool = True
    """Whether to train pretrained vectors; random vectors are always trained."""


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
    """Width of the latent variable z."""
    attention_size: common.Positive = 96
    """Width of W_att, which combines the decoder's output with the context."""
    initial_state: bool = False
    """Start the decoder from the encoder's last state. The models ded and ded_dattn always start from it."""
    residual_stack: bool = False
    """Use a decoder with three residual layers, and additive attention with the previous state as query (RNNsearch)."""
    word_dropout: common.Dropout = 0.25
    """Fraction of the decoder's input words that training replaces with the unknown token."""
    encoder_dropout: common.Dropout = 0.0
    """Dropout rate of the source word vectors."""


@dataclasses.dataclass
class VariationalOptions:
    """Random variables"""

    gamma_a: common.NotNegativeFloat = 0.1
    """Weight of the attention's KL in eq. 8, for random attention weights and for random context vectors."""
    objective: Literal["marginal", "hard"] = "marginal"
    """Objective of the model ved_position. marginal: the exact log E_p[p(word)]; hard: E_p[log p(word)], sampled."""
    free_bits: common.NotNegativeFloat = 0.5
    """Free bits: unpenalised KL per dimension of z, in nats. With 0.1, the default model hardly uses z."""
    annealing_center: float = 300.0
    """Step at which the logistic schedule of lambda_KL, the weight of all KLs, reaches 0.5."""
    annealing_slope: common.PositiveFloat = 0.02
    """Steepness of the logistic schedule of lambda_KL, per step."""
    annealing_end: common.Share = 0.3
    """Upper limit of lambda_KL."""


@dataclasses.dataclass
class ReportOptions(DecodeOptions):
    """Reports"""

    num_draws: common.Positive = 10
    """Number of sampled sentences per input, for the diversity metrics."""


# word_dropout, gamma_a and num_draws have the values of Bahuleyan et al. 2018. Most other defaults were tuned by hand
# on the built-in pairs.
@dataclasses.dataclass
class Options:
    """Train a variational encoder-decoder on pairs of sentences, by default on built-in pairs."""

    model: Literal[(*DETERMINISTIC, *VARIATIONAL)] = "ved_vattn_mean"
    """A model of Bahuleyan et al. 2018, or the same network with a different attention mechanism."""
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
    """Read lines of text from a file or standard input, and print one generated line for each input line."""

    num_samples: common.NotNegative = 0
    """Number of samples per line, separated by tabs; 0 prints one sentence, decoded at the posterior means."""
    seed: common.Seed32 = 0
    """Seed of the samples."""

    def check_run(self, options):
        if self.num_samples and options.model in DETERMINISTIC:
            raise InputError(f"--num-samples: the model {options.model} is deterministic; leave the option out.")


@dataclasses.dataclass
class CompareVed(common.CompareOptions):
    """Train models with several seeds. Print their metrics and the differences from the baseline, with 95% intervals.
    The options of `train` are also accepted, and apply to every run."""

    out: str = "runs/ved_compare"
    models: tuple[str, ...] = ("ded_dattn", "ved_dattn", "ved_vattn_0", "ved_vattn_mean")
    baseline: str = "ved_dattn"
    layout: tuple[Literal["table_1", "table_2", "table_4"], ...] = ()
    """Also print the selected tables of Bahuleyan et al. 2018."""


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
