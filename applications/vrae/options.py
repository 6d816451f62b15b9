"""Options of the variational recurrent autoencoder. presets/ has the presets, model.py the parts of a model."""

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
    """Sentences; without files, sentences of a small grammar"""

    train_text: common.File | None = None
    """Training sentences: one a line, or a CSV or TSV with a column of texts; plain or .gz."""
    valid_text: common.File | None = None
    """Validation sentences; without them a share of train is held out."""
    test_text: common.File | None = None
    """Test sentences, read once at the end of training and by `evaluate`."""
    text_column: str = "text"
    """Column of a table that has the texts."""
    valid_fraction: common.Fraction = 0.1
    """Share of train that is held out where there are no validation sentences."""
    test_fraction: common.NotNegativeFloat = 0.0
    """Share of train that is held out where there are no test sentences; 0 for none."""
    skip_invalid: bool = False
    """Count lines that are empty or not UTF-8 instead of stopping."""
    lowercase: bool = True
    """Read and write lower case."""
    split_punctuation: bool = True
    """Make every punctuation mark a token; off for text that is tokenised already."""
    vocabulary_size: VocabularySize = 10000
    """Most words."""
    min_count: common.Positive = 1
    """Rarer words of the training sentences are unknown."""
    max_length: common.Positive = 60
    """Longest sentence in tokens; longer ones are cut, and counted."""

    def check(self):
        if not self.test_fraction < 1:
            raise InputError(f"--test-fraction: must be less than 1. Received: {self.test_fraction:g}")
        if self.train_text is None:
            for name in ("valid_text", "test_text", "test_fraction"):
                if getattr(self, name):
                    raise InputError(f"--{name.replace('_', '-')} is given without --train-text.")
            return
        if self.text_column != "text" and not re.search(r"\.[ct]sv(\.gz)?$", self.train_text):
            raise InputError(f"--text-column: {self.train_text} is no CSV or TSV.")


@dataclasses.dataclass
class NetworkOptions:
    """Network"""

    embedding_width: common.Positive = 64
    """Width of the word vectors, which encoder and decoder share."""
    units: common.Positive = 128
    """Width of encoder, decoder and context."""
    latent_units: common.Positive = 16
    """Width of z_enc and of z_t."""
    word_dropout: common.Dropout = 0.0
    """Share of the words that the decoder reads as unknown."""
    input_dropout: common.Dropout = 0.0
    """Rate of dropout on the word vectors of the decoder."""


Document = Literal["mixture", "sequence"]
Annealing = Literal["linear", "none"]


@dataclasses.dataclass
class VariationalOptions:
    """Random variables"""

    annealing: Annealing = "linear"
    """Form of the weight of KL(z_enc) over the steps."""
    kl_start: common.NotNegativeFloat = 0.1
    """First weight of KL(z_enc)."""
    kl_hold: common.NotNegative = 0
    """Steps before it grows."""
    kl_steps: common.Positive = 600
    """Steps from there until it is 1."""
    step_annealing: Annealing = "none"
    """Form of the weight of the KLs of z_t. While it is small, the decoder learns to read coming words from z_t."""
    step_kl_start: common.NotNegativeFloat = 0.01
    """First weight of the KLs of z_t."""
    step_kl_steps: common.Positive = 600
    """Steps until it is 1."""
    free_bits: common.NotNegativeFloat = 1.25
    """Nats per dimension of z_enc that its KL leaves alone."""
    step_free_bits: common.NotNegativeFloat = 0.0
    """Nats per dimension of z_t that its KL leaves alone, averaged over the steps."""
    step_free_nats: common.NotNegativeFloat = 0.0
    """Nats of z_t a sentence that its KL leaves alone, at whichever of its steps they are."""
    informed: Literal["latent", "both", "none"] = "latent"
    """What attention informs: z_t, as in the paper; both z_t and c~_t, which is drawn around c_t and has a KL as z_t
    has; or neither. A z_t that is not informed is the mean of its prior."""
    lagging_steps: common.NotNegative = 0
    """First steps, in which p lags behind q (He et al. 2019): of each q_steps + 1 the last trains p alone, the others
    q alone."""
    q_steps: common.Positive = 4
    """Steps of q before a step of p, in these."""
    step_log_scale: float = -3.0
    """First log sigma of z_t, and the logarithm of a factor on its first kernels: noise of 1 would hide the words."""
    auxiliary_weight: common.NotNegativeFloat = 1e-4
    """alpha, the weight of log p(c_t | z_t) in the model vrae_sa_aux."""
    auxiliary_hold: common.NotNegative = 0
    """Steps before it has that weight."""
    context_floor: float = -3.0
    """Smallest log sigma of p(c | z_t)."""

    def check(self):
        if self.step_free_bits and self.step_free_nats:
            raise InputError("--step-free-nats: of a sentence, or --step-free-bits, of a dimension? Name one.")


@dataclasses.dataclass
class ReportOptions(DecodeOptions):
    """Reports"""

    num_decoded: common.Positive = 200
    """Validation sentences behind the columns of the log."""
    num_draws: common.Positive = 20
    """Draws of the importance-weighted bound."""
    max_bound: common.Positive = 500
    """Sentences of this bound."""


@dataclasses.dataclass
class SamplingOptions:
    """How words are drawn"""

    temperature: common.PositiveFloat = 0.5
    """Temperature of the words' probabilities."""
    top_p: common.Share | None = None
    """Draw one of the most probable words that have this probability together."""


# Defaults for two CPU cores and a few minutes on the built-in sentences.
@dataclasses.dataclass
class Options:
    """Train a language model with latent variables; without data options, on sentences of a small grammar."""

    model: Literal[MODELS] = "vrae_sa_aux"
    """One of the paper's tables."""
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
    """Report on a part of the data of a run, or on other sentences."""

    text: common.File | None = None
    """Other sentences, in the form of the run's own; the run's --skip-invalid applies."""
    num_draws: common.Positive | None = None
    """Draws of the importance-weighted bound instead of the run's."""


@dataclasses.dataclass
class GenerateVrae(common.GenerateOptions):
    """Write new sentences; or sentences from the z_enc of lines of text."""

    mode: Literal["new", "reconstruct", "interpolate"] = "new"
    """new: from the priors. reconstruct: each line from the mean of its z_enc. interpolate: from each line to the
    next, separated by tabs."""
    num: common.Positive | None = None
    """How many new sentences, by default 10, or sentences of an interpolation with both ends, by default 5."""
    temperature: common.PositiveFloat | None = None
    """Temperature of the words' probabilities instead of the run's, as top_p."""
    top_p: common.Share | None = None
    """Draw one of the most probable words that have this probability together."""
    seed: common.Seed32 = 0
    """Seed of the draws."""

    def check(self):
        if self.mode == "new" and self.input is not None:
            raise InputError("--input: new sentences need none; name a --mode.")
        if self.mode == "reconstruct" and self.num is not None:
            raise InputError("--num: a sentence is rebuilt once.")
        for name in ("temperature", "top_p"):
            if self.mode != "new" and getattr(self, name) is not None:
                raise InputError(f"--{name.replace('_', '-')}: words are drawn for new sentences alone.")

    def check_run(self, options):
        if self.mode != "new" and options.model == "lstm":
            raise InputError(f"--mode: the model {options.model} has no z_enc. Received: {self.mode}")


@dataclasses.dataclass
class SummarizeVrae:
    """Extract summaries: the sentences with the models nearest to the model of their document."""

    run: common.TrainedRun
    """Folder of a run."""
    documents: common.Folder | None = None
    """Folder of files NAME.txt.data, one for each topic; without one, the topics of Python's documentation."""
    references: common.Folder | None = None
    """Summaries by people, a folder for each topic."""
    max_words: common.Positive | None = None
    """Longest summary in words; by default 25 with --documents, otherwise 250."""
    document: Document = "mixture"
    """Model of a document: the moments of a mixture of its sentences' models, or the model of all its words in turn."""
    out: str | None = None
    """Folder of the summaries; by default summaries/ in the run's. It may have summaries of the same documents."""

    def check(self):
        if self.references is not None and self.documents is None:
            raise InputError("--references: of which documents? Name --documents, too.")


@dataclasses.dataclass
class CompareVrae(common.CompareOptions):
    """Train models with several seeds, and print tables with differences and intervals. Options
    of `train` are options of every run."""

    out: str = "runs/vrae_compare"
    models: tuple[str, ...] = MODELS
    baseline: str = "lstm"
    layout: tuple[Literal["paper", "table_3"], ...] = ()
    """paper: also the columns of the paper's Tables 1 and 2 beside bounds. table_3: its summaries, of documents with
    references."""
    documents: common.Folder | None = None
    """Documents of table_3, as `summarize` has them."""
    references: common.Folder | None = None
    """Their summaries by people."""
    max_words: common.Positive | None = None
    """Longest summary of table_3 in words, 25 where it is left out."""
    document: Document = "mixture"
    """Model of a document, as in `summarize`; sequence is the paper's."""

    def check(self):
        super().check()
        if "table_3" not in self.layout and (self.max_words is not None or self.document != "mixture"):
            raise InputError("--max-words, --document: are of --layout table_3 alone.")
        has_paths = {self.documents is not None, self.references is not None}
        if has_paths != {"table_3" in self.layout}:
            raise InputError("--layout table_3, --documents and --references belong together.")
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
