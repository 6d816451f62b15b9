"""Options of neural machine translation with latent alignments, its rows, and the presets with every value's source."""

import dataclasses

import keras_vattn
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
    """One line of the papers' tables.

    Attributes:
        objective: Words of a `keras_vattn.LatentObjective`, or `None` where the decoder's own attention draws weights.
        alignment: Alignment of the decoder's attention where that draws, `None` for softmax.
        needs_posterior: Whether training has an inference network that sees the target.
        num_samples: Draws of a word's alignment in training.
    """

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

    def latent_objective(self, options):
        """Return the `keras_vattn.LatentObjective` of a row that has one."""
        return keras_vattn.LatentObjective(
            self.objective, num_samples=self.num_samples, baseline=options.baseline, tau=options.tau
        )

    def alignment_of(self, options):
        """Return the alignment of a row whose attention draws."""
        alignment = options.relaxed if self.alignment == "relaxed" else self.alignment
        if alignment == "weibull":
            return keras_vattn.Weibull(options.weibull_k)
        if alignment == "lognormal":
            return keras_vattn.LogNormal(options.lognormal_sigma)
        if alignment == "gumbel_softmax":
            return keras_vattn.GumbelSoftmax(options.tau)
        return keras_vattn.Dirichlet()

    def prior_of(self, options):
        """Return the contextual prior of a BAM row, `None` for the others."""
        if not self.is_bayesian:
            return None
        return keras_vattn.ContextualPrior(
            options.prior_hidden_units, beta=options.prior_beta, sigma=options.prior_sigma
        )

    def annealing_of(self, options):
        """Return the annealing of the KL, or `None`: logistic for BAM rows, linear for those with a posterior."""
        if self.is_bayesian and options.annealing_rate:
            return keras_vattn.LogisticAnnealing(0.0, options.annealing_rate)
        if self.needs_posterior and options.annealing_steps:
            return keras_vattn.LinearAnnealing(options.annealing_steps)
        return None


ROWS = {
    "soft": Row("soft"),
    "marginal": Row("marginal"),
    "hard_enum": Row("hard/enumerate"),
    "hard_sample": Row("hard/sample"),
    "relaxed": Row(alignment="relaxed", needs_posterior=True),
    "variational_enum": Row("elbo/enumerate", needs_posterior=True),
    "variational_sample": Row("elbo/sample", needs_posterior=True),
    "variational_gumbel": Row("elbo/gumbel", needs_posterior=True),
    "variational_wake_sleep": Row("wake_sleep/sample", needs_posterior=True, num_samples=5),
    "bam_weibull": Row(alignment="weibull"),
    "bam_lognormal": Row(alignment="lognormal"),
}
RELAXED = ("dirichlet", "lognormal", "gumbel_softmax")


def find_row(name):
    """Return the row of that name; `InputError` lists the known ones."""
    if name not in ROWS:
        raise InputError(f"--row: expected one of {', '.join(ROWS)}. Received: {name}")
    return ROWS[name]


@dataclasses.dataclass
class Options:
    """Train a translation model on parallel text; without data options, on an embedded set with known alignments."""

    row: str = "marginal"
    """Which model: a row of Deng et al. 2018 or Fan et al. 2020."""
    out: str = "runs/nmt"
    """Folder of the run."""
    resume: bool = False
    """Go on with the run in the folder."""
    init_from: str | None = None
    """Run whose weights this one starts from, as far as both have them: a trained soft model."""

    data: str | None = None
    """Folder with train, valid and test files, named train.src and train.tgt, or with data_source and data_target."""
    data_source: str = "src"
    """Ending of the source files in `data`, for instance lc.norm.tok.de.gz."""
    data_target: str = "tgt"
    train_source: str | None = None
    """Training sources, one a line, plain or .gz; beside train_target, instead of `data`."""
    train_target: str | None = None
    valid_source: str | None = None
    valid_target: str | None = None
    test_source: str | None = None
    """Test pairs, touched once at the end of training and by `evaluate`."""
    test_target: str | None = None
    valid_links: str | None = None
    """Gold word alignments of the validation pairs, a line a pair: Pharaoh links such as 0-0 1p2, words from 0."""
    test_links: str | None = None
    valid_fraction: float = 0.05
    """Share of train that is held out where there are no validation files."""
    max_train_pairs: int | None = None
    """Use that many training pairs, chosen at random with data_seed."""
    max_valid_pairs: int | None = None
    max_test_pairs: int | None = None
    data_seed: int = 0
    """Seed of the cuts, apart from the model's, so that seeds are compared on the same data."""
    skip_invalid: bool = False
    """Count pairs with a side that is empty, segmented too, or bytes that are not UTF-8, instead of stopping."""
    shuffle_sources: bool = False
    """Control: pair every training target with another pair's source."""

    segmentation: str = "bpe"
    """bpe: joint sentencepiece BPE. words, characters, or segmented for text with "@@ " already in it."""
    vocabulary_size: int = 8000
    """Entries of the joint BPE, or the most entries of each side's vocabulary."""
    lowercase: bool = True
    normalization: str | None = "NFKC"
    """Unicode normal form of the text: NFKC, NFC or none."""
    max_length: int = 60
    """Longest sentence in tokens; longer training pairs are left out and counted, other sentences are cut."""

    embedding_width: int = 128
    encoder_units: int = 128
    """Width of each LSTM in each direction, of the encoder and of the inference network."""
    units: int = 256
    """Width of the decoder and of the emission."""
    num_layers: int = 1
    """Layers of the encoder, the decoder and the inference network."""
    attention_units: int = 128
    dropout: float = 0.2
    initial_range: float = 0.0
    """Weights start from U[-r, r]; 0 for Keras's own initializers."""

    baseline: str | None = "soft"
    """Of the score-function rows: soft, moving_average or none."""
    tau: float = 0.5
    """Temperature of variational_gumbel, and of a relaxed gumbel_softmax."""
    relaxed: str = "dirichlet"
    """Distribution of the row relaxed: dirichlet, lognormal or gumbel_softmax."""
    warm_start: int = 0
    """Steps of the row relaxed that draw from p and pay no KL (algorithm 2 of Deng et al. 2018)."""
    kl_weight: float = 1.0
    """Factor on the KL of relaxed and BAM rows."""
    weibull_k: float = 5.0
    lognormal_sigma: float = 0.3
    prior_beta: float = 1e-6
    """Rate of the Gamma prior of bam_weibull."""
    prior_sigma: float = 1.0
    """Standard deviation of the prior of bam_lognormal."""
    prior_hidden_units: int = 5
    annealing_rate: float = 1.0
    """rho of the BAM rows: the KL is weighed by sigmoid(rho step); 0 for no annealing."""
    annealing_steps: int = 0
    """Steps over which the KL of rows with a posterior grows to its full weight; 0 for full weight from the start, as
    in the paper, where a small model may keep p and q nearly uniform."""
    posterior_file: str | None = None
    """Alignments of the training pairs instead of an inference network, a line a pair: Pharaoh links, or a JSON list of
    rows, one a target word, with the probability of each source word (a name that ends in .jsonl or .jsonl.gz)."""
    valid_posterior_file: str | None = None
    """The same for the validation pairs; both or neither."""
    posterior_smoothing: float = 0.1
    """Share of a uniform distribution in these alignments."""

    batch_size: int = 16
    batch_tokens: int | None = None
    """Target tokens of a batch, padding included, instead of batch_size sentences."""
    epochs: int = 8
    learning_rate: float = 2e-3
    clip_norm: float = 5.0
    patience: int = 0
    """The learning rate is halved where the bound on validation was not better for more than so many epochs."""
    seed: int = 0
    num_beams: int = 10
    length_penalty: float = 1.0
    coverage_penalty: float = 0.0
    eos_normalization: float = 0.0
    """e in log p(end) - e |x| / |y|; 3 in the published code."""
    jit: bool = False
    precision: str = "float32"
    """Keras dtype policy: float32, mixed_float16 or mixed_bfloat16."""
    memory_growth: bool = False
    """Let a GPU's memory grow as needed."""
    export: bool = True
    """Write the SavedModel at the end."""


# For two CPU cores and a few minutes on the embedded pairs; the alignment's values are the papers'.
SMALL = Options()

# Deng et al. 2018, section 5 and appendix, unless said otherwise: "code" is the authors', "BAM" Fan et al. 2020, B.4.
PAPER = dataclasses.replace(
    SMALL,
    segmentation="bpe",  # joint byte pair encoding
    vocabulary_size=14_000,  # appendix
    lowercase=True,  # the published data
    normalization="NFKC",  # in neither
    max_length=125,  # appendix
    embedding_width=512,  # code
    encoder_units=512,  # code: 2 layers of 512 in each direction
    units=768,  # code
    num_layers=2,  # appendix
    attention_units=512,  # code
    dropout=0.3,  # appendix
    initial_range=0.1,  # appendix: U[-0.1, 0.1]
    batch_size=6,  # appendix
    epochs=30,  # appendix
    learning_rate=3e-4,  # appendix
    clip_norm=5.0,  # appendix
    patience=0,  # code: halved as soon as validation does not improve
    baseline="soft",  # section 3, eq. 1
    tau=0.1,  # code
    weibull_k=5.0,  # BAM
    prior_beta=1e-6,  # BAM
    prior_hidden_units=5,  # BAM
    annealing_rate=1.0,  # BAM
    num_beams=10,  # section 5
    length_penalty=1.0,  # section 5
    eos_normalization=0.0,  # section 5; 3 in the code
)

PRESETS = {"small": SMALL, "paper": PAPER}
CHOICES = {
    "segmentation": ("bpe", "words", "characters", "segmented"),
    "normalization": ("NFKC", "NFC", None),
    "baseline": ("soft", "moving_average", None),
    "relaxed": RELAXED,
    "precision": PRECISIONS,
}
POSITIVE = (
    "vocabulary_size max_length embedding_width encoder_units units num_layers attention_units tau weibull_k "
    "lognormal_sigma prior_beta prior_sigma prior_hidden_units batch_size batch_tokens epochs learning_rate clip_norm "
    "num_beams max_train_pairs max_valid_pairs max_test_pairs"
)
NOT_NEGATIVE = (
    "initial_range warm_start kl_weight annealing_rate annealing_steps patience length_penalty coverage_penalty "
    "eos_normalization"
)


def validate(options):
    """Raise `InputError` for an option outside its range, naming it."""
    row = find_row(options.row)
    check_choices(options, CHOICES)
    check_finite(options)
    check_positive(options, POSITIVE)
    check_not_negative(options, NOT_NEGATIVE)
    check_dropout(options, "dropout")
    if not 0 < options.posterior_smoothing <= 1:
        raise out_of_range("posterior_smoothing", "must be in (0, 1]", options.posterior_smoothing)
    if (options.posterior_file is None) != (options.valid_posterior_file is None):
        raise InputError("--posterior-file and --valid-posterior-file belong together; one of them is missing.")
    if options.posterior_file is not None and not row.needs_posterior:
        raise InputError(f"--posterior-file: the row {options.row} has no posterior.")
    check_fraction(options, "valid_fraction")
    check_seeds(options, 22)
