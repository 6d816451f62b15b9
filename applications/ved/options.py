"""Options of the variational encoder-decoder, and the two presets with the source of every value."""

import dataclasses

from applications.common.checks import (
    PRECISIONS,
    check_choices,
    check_dropout,
    check_finite,
    check_fraction,
    check_not_negative,
    check_positive,
    check_seeds,
    out_of_range,
)
from applications.common.errors import InputError


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the paper's tables: which parts a model has.

    Attributes:
        latent: Whether there is a z.
        attention: `None`, "deterministic" or "gaussian".
        prior: Prior of the Gaussian attention, "standard" or "mean".
        initial_state: Whether the encoder's last state starts the decoder.
        autoencoder: Whether the source is the target (the pilot study).
        two_stages: Whether the first epochs run without attention.
        residual_stack: Whether the decoder is the additive, previous-state, residual one of Bahdanau.
    """

    latent: bool = False
    attention: str | None = None
    prior: str = "standard"
    initial_state: bool = False
    autoencoder: bool = False
    two_stages: bool = False
    residual_stack: bool = False

    @property
    def stochastic(self):
        return self.latent or self.attention == "gaussian"


# Deterministic rows start from the encoder's state, variational ones from zeros, as in the published code.
ROWS = {
    "ded": Row(initial_state=True),
    "ded_dattn": Row(attention="deterministic", initial_state=True),
    "ved_dattn": Row(latent=True, attention="deterministic"),
    "ved_dattn_2stage": Row(latent=True, attention="deterministic", two_stages=True),
    "ved_vattn_0": Row(latent=True, attention="gaussian", prior="standard"),
    "ved_vattn_mean": Row(latent=True, attention="gaussian", prior="mean"),
    "rnnsearch": Row(attention="deterministic", initial_state=True, residual_stack=True),
    "vae": Row(latent=True, autoencoder=True),
    "vae_hidden_init": Row(latent=True, autoencoder=True, initial_state=True),
}


def find_row(name):
    """Return the row of that name; `InputError` lists the known ones."""
    if name not in ROWS:
        raise InputError(f"--row: expected one of {', '.join(ROWS)}. Received: {name}")
    return ROWS[name]


@dataclasses.dataclass
class Options:
    """Train a variational encoder-decoder on pairs of sentences; without data options, on an embedded set."""

    row: str = "ved_vattn_mean"
    """Which model: a row of the paper's tables, rnnsearch, or vae and vae_hidden_init of the pilot study."""
    out: str = "runs/ved"
    """Folder of the run."""
    resume: bool = False
    """Go on with the run in the folder."""

    train_source: str | None = None
    """Training sources, one a line, plain or .gz; beside train_target."""
    train_target: str | None = None
    """Training targets, one a line."""
    train_table: str | None = None
    """Training pairs, a CSV or TSV with named columns, plain or .gz."""
    valid_source: str | None = None
    valid_target: str | None = None
    valid_table: str | None = None
    """Validation pairs; where none are given they are cut from train by source sentence or group."""
    test_source: str | None = None
    test_target: str | None = None
    test_table: str | None = None
    """Test pairs, touched once at the end of training and by `evaluate`."""
    source_column: str = "source"
    target_column: str = "target"
    group_column: str | None = None
    """Column of a table that says which rows belong together (an article, a conversation) when validation is cut."""
    valid_fraction: float = 0.1
    max_train_pairs: int | None = None
    """Use that many training pairs, whole groups chosen at random with data_seed."""
    max_valid_pairs: int | None = 2000
    max_test_sources: int | None = None
    """Report on that many different test sources, the first ones."""
    data_seed: int = 0
    """Seed of the cuts, apart from the model's, so that seeds are compared on the same data."""
    skip_invalid: bool = False
    """Count pairs with an empty side, or bytes that are not UTF-8, instead of stopping."""
    lowercase: bool = True
    split_punctuation: bool = True
    """Every punctuation mark a token of its own; off for text that is tokenised already."""
    shuffle_sources: bool = False
    """Control: pair every training target with another pair's source."""

    source_vocabulary_size: int = 8000
    target_vocabulary_size: int = 8000
    min_count: int = 1
    max_source_length: int = 40
    max_target_length: int = 25
    embedding_width: int = 64
    embeddings: str | None = None
    """Pretrained word vectors: GloVe text, word2vec text or .bin, or .npz with embeddings_words."""
    embeddings_words: str | None = None
    train_embeddings: bool = True

    encoder_units: int = 64
    """Width of the encoder LSTM in each direction."""
    units: int = 96
    """Width of the decoder."""
    latent_units: int = 32
    attention_size: int = 96
    """Width of W_att, which joins the decoder's output and the context."""
    decoder_form: str = "code"
    """code: query h_j, logits W_out W_att [h_j; a_j], a_j fed at j + 1. printed: query h_(j-1), a_j fed at j."""
    gamma_a: float = 0.1
    """Factor on the KL of the attention (eq. 8)."""
    free_bits: float = 0.0
    """Nats per dimension of z that the KL leaves alone."""
    annealing_center: float = 300.0
    """Step at which lambda_KL is one half."""
    annealing_slope: float = 0.02
    annealing_end: float = 0.3
    """Largest lambda_KL."""
    word_dropout: float = 0.25
    encoder_dropout: float = 0.0

    batch_size: int = 64
    epochs: int = 8
    stage_one_epochs: int = 6
    """Epochs without attention in ved_dattn_2stage; the optimizer and the learning rate start anew after them."""
    learning_rate: float = 0.005
    learning_rate_decay: float = 0.75
    """Factor on the learning rate per epoch."""
    clip_norm: float = 5.0
    seed: int = 0
    num_draws: int = 10
    """Draws per input in the diversity metrics."""
    decode_every: int = 1
    """Decode validation inputs every so many epochs."""
    num_decoded: int = 100
    """How many different validation inputs the callback decodes."""
    jit: bool = False
    precision: str = "float32"
    """Keras dtype policy: float32, mixed_float16 or mixed_bfloat16."""
    memory_growth: bool = False
    """Let a GPU's memory grow as needed."""
    export: bool = True
    """Write the SavedModel at the end."""


# For two CPU cores and a few minutes, chosen by hand on the embedded pairs; word_dropout, gamma_a and num_draws are the
# paper's.
SMALL = Options()

# Bahuleyan et al. 2018, section 4.1, unless "code": the authors' code, if the paper is silent.
# Left out: the code's layer normalisation inside the LSTMs and its L2 term of 0.001, of which the paper says nothing.
PAPER = dataclasses.replace(
    SMALL,
    source_vocabulary_size=40_000,  # section 4.1
    target_vocabulary_size=40_000,  # section 4.1
    max_source_length=30,  # code
    max_target_length=20,  # code
    embedding_width=300,  # section 4.1
    encoder_units=100,  # section 4.1; in each direction, code
    units=100,  # section 4.1
    latent_units=100,  # section 4.1
    attention_size=100,  # code
    decoder_form="code",  # code; "printed" is section 3
    gamma_a=0.1,  # section 4.1, strength of attention's KL loss
    annealing_center=4500.0,  # code: (tanh((step - 4500) / 1000) + 1) / 2
    annealing_slope=0.002,  # code
    annealing_end=0.047426,  # code: lambda is updated up to step 3000 only
    word_dropout=0.25,  # section 4.1
    encoder_dropout=0.2,  # code
    batch_size=100,  # section 4.1
    epochs=10,  # code
    stage_one_epochs=6,  # section 4.1
    learning_rate=0.005,  # section 4.1
    learning_rate_decay=0.95,  # section 4.1 (0.75 in the code)
    clip_norm=5.0,  # code clips each element to [-5, 5]; the norm keeps the direction
    train_embeddings=False,  # code; it holds for pretrained vectors, others are always trained
    free_bits=0.0,  # in neither
    min_count=1,  # in neither
    lowercase=True,  # code
    split_punctuation=True,  # the code drops punctuation
    num_draws=10,  # section 4.1
)

PAPER_DIALOGUE = dataclasses.replace(
    PAPER,
    source_vocabulary_size=30_000,  # section 4.2
    target_vocabulary_size=30_000,  # section 4.2
)

PRESETS = {"small": SMALL, "paper": PAPER, "paper_dialogue": PAPER_DIALOGUE}


def validate(options):
    """Raise `InputError` for an option outside its range, naming it."""
    find_row(options.row)
    check_choices(options, {"decoder_form": ("code", "printed"), "precision": PRECISIONS})
    check_finite(options)
    check_positive(
        options,
        "max_source_length max_target_length embedding_width encoder_units units latent_units attention_size "
        "annealing_slope annealing_end batch_size epochs stage_one_epochs learning_rate learning_rate_decay clip_norm "
        "num_draws decode_every num_decoded max_train_pairs max_valid_pairs max_test_sources",
    )
    for name in ("source_vocabulary_size", "target_vocabulary_size"):
        if not getattr(options, name) > 4:
            raise out_of_range(name, "must be more than the 4 special tokens", getattr(options, name))
    check_not_negative(options, "gamma_a free_bits")
    if options.annealing_end > 1:
        raise out_of_range("annealing_end", "must be at most 1", options.annealing_end)
    check_dropout(options, "word_dropout encoder_dropout")
    check_fraction(options, "valid_fraction")
    check_seeds(options, 27)
    if ROWS[options.row].two_stages and options.epochs <= options.stage_one_epochs:
        raise InputError(
            f"--epochs: {options.row} needs more epochs than its first stage, {options.stage_one_epochs}. "
            f"Received: {options.epochs}"
        )
