"""Options of the variational recurrent autoencoder. presets/ has the paper's values; model.py defines the models."""

import dataclasses
import re
from typing import Literal

from applications.common import options as common
from applications.common.errors import InputError
from applications.common.program import Program
from applications.text.options import DecodeOptions, VocabularySize
from applications.vrae.documents import read_topics

MODELS = ("lstm", "vrae", "vrae_sa", "vrae_sa_aux")


@dataclasses.dataclass
class TextOptions:
    """Sentences (default: built-in sentences of a small grammar)"""

    train_text: common.File | None = None
    """Training sentences: one per line, or a CSV or TSV with a text column; plain or .gz."""
    valid_text: common.File | None = None
    """Validation sentences; by default, some of the training sentences are held out."""
    test_text: common.File | None = None
    """Test sentences, read once at the end of training and by `evaluate`."""
    text_column: str = "text"
    """Name of the text column in a CSV or TSV."""
    valid_fraction: common.Fraction = 0.1
    """Fraction of the training sentences to hold out for validation if there is no validation file."""
    test_fraction: common.NotNegativeFloat = 0.0
    """Fraction of the training sentences to hold out for testing if there is no test file; 0 for no test data."""
    skip_invalid: bool = False
    """Skip and count lines that are empty or invalid UTF-8, instead of stopping."""
    lowercase: bool = True
    """Lower-case the text."""
    split_punctuation: bool = True
    """Make every punctuation mark a token; pass --no-split-punctuation if the text is already tokenised."""
    vocabulary_size: VocabularySize = 10000
    """Maximum vocabulary size."""
    min_count: common.Positive = 1
    """Minimum number of training occurrences of a word; rarer words are unknown."""
    max_length: common.Positive = 60
    """Maximum sentence length in tokens; longer sentences are truncated and counted."""

    def check(self):
        if not self.test_fraction < 1:
            raise InputError(f"--test-fraction: must be less than 1. Received: {self.test_fraction:g}")
        if self.train_text is None:
            for name in ("valid_text", "test_text", "test_fraction"):
                if getattr(self, name):
                    raise InputError(f"--{name.replace('_', '-')} requires --train-text; pass both.")
            return
        if self.text_column != "text" and not re.search(r"\.[ct]sv(\.gz)?$", self.train_text):
            raise InputError(f"--text-column requires a CSV or TSV file. Received: --train-text {self.train_text}")


@dataclasses.dataclass
class NetworkOptions:
    """Network"""

    embedding_width: common.Positive = 64
    """Width of the word vectors, shared by encoder and decoder."""
    units: common.Positive = 128
    """Width of encoder, decoder and context."""
    latent_units: common.Positive = 16
    """Width of z_enc and of z_t."""
    word_dropout: common.Dropout = 0.0
    """Fraction of the decoder's input words that training replaces with the unknown token."""
    input_dropout: common.Dropout = 0.0
    """Dropout rate of the decoder's word vectors."""


Document = Literal["mixture", "sequence"]
Annealing = Literal["linear", "none"]


@dataclasses.dataclass
class VariationalOptions:
    """Random variables"""

    annealing: Annealing = "linear"
    """Schedule for the KL weight of z_enc. linear: from kl_start to 1. none: constantly 1."""
    kl_start: common.NotNegativeFloat = 0.1
    """Initial KL weight of z_enc."""
    kl_hold: common.NotNegative = 0
    """Number of steps before the KL weight of z_enc starts to grow."""
    kl_steps: common.Positive = 600
    """Number of steps during which the KL weight of z_enc grows to 1."""
    step_annealing: Annealing = "none"
    """Schedule for the KL weight of z_t. linear: from step_kl_start to 1; while the weight is small, the decoder learns
    to read future words from z_t. none: constantly 1."""
    step_kl_start: common.NotNegativeFloat = 0.01
    """Initial KL weight of z_t."""
    step_kl_steps: common.Positive = 600
    """Number of steps during which the KL weight of z_t grows to 1."""
    free_bits: common.NotNegativeFloat = 1.25
    """Free bits: unpenalised KL per dimension of z_enc, in nats."""
    step_free_bits: common.NotNegativeFloat = 0.0
    """Free bits: unpenalised KL per dimension of z_t, in nats, averaged over the steps."""
    step_free_nats: common.NotNegativeFloat = 0.0
    """Free nats: unpenalised KL of z_t per sentence, in nats, summed over the steps."""
    informed: Literal["latent", "both", "none"] = "latent"
    """Variables that depend on the attention. latent: z_t, as in the paper. both: z_t and c~_t; c~_t is sampled around
    c_t and has a KL. none: no variable; z_t is the mean of its prior."""
    lagging_steps: common.NotNegative = 0
    """Number of first steps that train q more often than p (He et al. 2019): after q_steps steps for q, one for p."""
    q_steps: common.Positive = 4
    """During lagging_steps, number of steps that train only q before each step that trains only p."""
    step_log_scale: float = -3.0
    """Initial log sigma of z_t; sigma also scales the initial kernels of z_t. At 0, the noise would hide the words."""
    auxiliary_weight: common.NotNegativeFloat = 1e-4
    """alpha, the weight of log p(c_t | z_t) in the model vrae_sa_aux."""
    auxiliary_hold: common.NotNegative = 0
    """Number of steps before the auxiliary loss is added."""
    context_floor: float = -3.0
    """Lower bound of log sigma of p(c | z_t), which predicts the attended context."""

    def check(self):
        if self.step_free_bits and self.step_free_nats:
            raise InputError(
                "expected at most one of --step-free-nats (per sentence) and --step-free-bits (per dimension)."
            )


@dataclasses.dataclass
class ReportOptions(DecodeOptions):
    """Reports"""

    num_decoded: common.Positive = 200
    """Number of validation sentences used to compute the active units and the mutual information in the log."""
    num_draws: common.Positive = 20
    """Number of samples per sentence for the importance-weighted bound."""
    max_bound: common.Positive = 500
    """Maximum number of sentences for the importance-weighted bound."""


@dataclasses.dataclass
class SamplingOptions:
    """Sampling of words"""

    temperature: common.PositiveFloat = 0.5
    """Temperature of the word probabilities."""
    top_p: common.Share | None = None
    """Nucleus sampling: sample only from the smallest set of words whose total probability reaches this value."""


@dataclasses.dataclass
class Options:
    """Train a language model with latent variables, by default on sentences from a small grammar."""

    model: Literal[MODELS] = "vrae_sa_aux"
    """A model in the tables of Chien and Wang 2019 (VRAE-SA)."""
    run: common.RunOptions = common.group(common.RunOptions, out="runs/vrae")
    text: TextOptions = common.group(TextOptions)
    network: NetworkOptions = common.group(NetworkOptions)
    variational: VariationalOptions = common.group(VariationalOptions)
    fit: common.FitOptions = common.group(
        common.FitOptions, batch_size=64, epochs=16, learning_rate=4e-3, schedule="cosine"
    )
    sampling: SamplingOptions = common.group(SamplingOptions)
    reports: ReportOptions = common.group(ReportOptions)


@dataclasses.dataclass
class EvaluateVrae(common.EvaluateOptions):
    """Compute the metrics of a run on a split of its data, or on other sentences."""

    text: common.File | None = None
    """Other sentences, in the format of the training file; the run's value of --skip-invalid applies."""
    num_draws: common.Positive | None = None
    """Number of samples per sentence for the importance-weighted bound; the default is the value of the run."""


@dataclasses.dataclass
class GenerateVrae(common.GenerateOptions):
    """Generate new sentences, reconstruct lines of text, or interpolate between them."""

    mode: Literal["new", "reconstruct", "interpolate"] = "new"
    """new: sample from the priors. reconstruct: encode each line and decode from the mean of z_enc. interpolate: print
    sentences between each line and the next, separated by tabs."""
    num: common.Positive | None = None
    """Number of new sentences (default 10), or of sentences in an interpolation, including both ends (default 5)."""
    temperature: common.PositiveFloat | None = None
    """Temperature of the word probabilities; the default is the value of the run."""
    top_p: common.Share | None = None
    """Nucleus sampling, as for `train --top-p`; the default is the value of the run."""
    seed: common.Seed32 = 0
    """Seed of the samples."""

    def check(self):
        if self.mode == "new" and self.input is not None:
            raise InputError("--input: --mode new reads no input; choose another --mode.")
        if self.mode == "reconstruct" and self.num is not None:
            raise InputError("--num: omit this option, because --mode reconstruct decodes each line once.")
        for name in ("temperature", "top_p"):
            if self.mode != "new" and getattr(self, name) is not None:
                raise InputError(f"--{name.replace('_', '-')} requires --mode new, which samples words.")

    def check_run(self, options):
        if self.mode != "new" and options.model == "lstm":
            raise InputError(f"--mode: {options.model} has no latent z_enc; choose new. Received: {self.mode}")


@dataclasses.dataclass
class SummarizeVrae:
    """Extract summaries from documents: the sentences whose Gaussians are closest to the Gaussian of the document."""

    run: common.TrainedRun
    """Folder of a run."""
    documents: common.Folder | None = None
    """Folder with a file NAME.txt.data per topic; the default is the topics of Python's documentation."""
    references: common.Folder | None = None
    """Folder of reference summaries, with one folder per topic."""
    max_words: common.Positive | None = None
    """Maximum summary length in words; defaults to 25 with --documents, else 250."""
    document: Document = "mixture"
    """Gaussian of a document. mixture: combine the Gaussians of its sentences. sequence: encode it as one sentence."""
    out: str | None = None
    """Output folder; defaults to summaries/ in the run folder. Summaries of the same documents are overwritten."""

    def check(self):
        if self.references is not None and self.documents is None:
            raise InputError("--references requires --documents; pass both.")


@dataclasses.dataclass
class CompareVrae(common.CompareOptions):
    """Train models with several seeds. Print their metrics and the differences from the baseline, with 95% intervals.
    The options of `train` are also accepted, and apply to every run."""

    out: str = "runs/vrae_compare"
    models: tuple[str, ...] = MODELS
    baseline: str = "lstm"
    layout: tuple[Literal["paper", "table_3"], ...] = ()
    """Also print tables of Chien and Wang 2019. paper: Tables 1 and 2, and a table of bounds. table_3: Table 3, for the
    summaries of --documents."""
    documents: common.Folder | None = None
    """Folder of documents for table_3, in the format of `summarize --documents`."""
    references: common.Folder | None = None
    """Reference summaries of the documents in --documents."""
    max_words: common.Positive | None = None
    """Maximum summary length of table_3 in words; defaults to 25."""
    document: Document = "mixture"
    """Gaussian of a document, as in `summarize`; the paper uses sequence."""

    def check(self):
        super().check()
        if "table_3" not in self.layout and (self.max_words is not None or self.document != "mixture"):
            raise InputError("--max-words and --document require --layout table_3.")
        has_paths = {self.documents is not None, self.references is not None}
        if has_paths != {"table_3" in self.layout}:
            raise InputError(
                "--layout table_3 requires --documents and --references; both options require --layout table_3."
            )
        if self.documents is not None:
            read_topics(self.documents, self.references)


PROGRAM = Program(
    "applications.vrae",
    {
        "train": Options,
        "evaluate": EvaluateVrae,
        "generate": GenerateVrae,
        "summarize": SummarizeVrae,
        "compare": CompareVrae,
        "export": common.ExportOptions,
    },
    may_change=("num_draws", "max_bound"),
    codec_options=("lowercase", "split_punctuation", "vocabulary_size", "min_count", "max_length"),
)
