"""Options of the variational recurrent autoencoder, and its models. The presets stand in presets/."""

import dataclasses
import re
from typing import Annotated, Literal

from applications.common import options as common
from applications.common.errors import InputError
from applications.common.program import Program
from applications.text.options import DecodeOptions

VocabularySize = Annotated[int, common.Bound("must be more than the 4 special tokens", lambda x: x > 4)]


@dataclasses.dataclass(frozen=True)
class Model:
    """One line of the paper's tables.

    Attributes:
        title: Name of the model in the paper.
        latent: Whether there is z_enc.
        attention: Whether the decoder is stochastic, and attends to the sentence itself.
        auxiliary: Whether z_t has to say what was attended to.
    """

    title: str
    latent: bool = True
    attention: bool = False
    auxiliary: bool = False


MODELS = {
    "lstm": Model("LSTM", latent=False),
    "vrae": Model("VRAE"),
    "vrae_sa": Model("VRAE-SA w/o aux", attention=True),
    "vrae_sa_aux": Model("VRAE-SA w aux", attention=True, auxiliary=True),
}


@dataclasses.dataclass
class TextOptions:
    """Sentences; without files, those of Python's own documentation"""

    train_text: common.File | None = None
    """Training sentences: one a line, or a CSV or TSV with a column of texts; plain or .gz."""
    valid_text: common.File | None = None
    """Validation sentences; without them a share of train is held out."""
    test_text: common.File | None = None
    """Test sentences, touched once at the end of training and by `evaluate`."""
    text_column: str = "text"
    """Column of a table that has the texts."""
    labelled: bool = False
    """Lines begin with a label, which is left out. A table has its labels in a column of their own."""
    valid_fraction: common.Fraction = 0.1
    """Share of train that is held out where there are no validation sentences."""
    test_fraction: common.NotNegativeFloat = 0.0
    """Share of train that is held out where there are no test sentences; 0 for none."""
    data_seed: common.Seed = 0
    """Seed of the cuts, apart from the model's, so that seeds are compared on the same data."""
    skip_invalid: bool = False
    """Count lines that are empty or not UTF-8 instead of stopping."""
    lowercase: bool = True
    """Read and write lower case."""
    split_punctuation: bool = True
    """Every punctuation mark a token of its own; off for text that is tokenised already."""
    vocabulary_size: VocabularySize = 10000
    """Most words."""
    min_count: common.Positive = 1
    """A rarer word of the training sentences is an unknown one."""
    max_length: common.Positive = 60
    """Longest sentence in tokens; longer ones are cut, and counted."""

    def check(self):
        for part in ("valid", "test"):
            if getattr(self, f"{part}_text") is not None and self.train_text is None:
                raise InputError(f"--{part}-text is given without --train-text.")
        if not self.test_fraction < 1:
            raise InputError(f"--test-fraction: must be less than 1. Received: {self.test_fraction:g}")
        if self.train_text is None:
            for name in ("labelled", "test_fraction"):
                if getattr(self, name):
                    raise InputError(f"--{name.replace('_', '-')} is given without --train-text.")
            return
        is_table = re.search(r"\.[ct]sv(\.gz)?$", self.train_text)
        if self.text_column != "text" and not is_table:
            raise InputError(f"--text-column: {self.train_text} is no CSV or TSV.")
        if self.labelled and is_table:
            raise InputError(f"--labelled: {self.train_text} is a table, whose labels are a column of their own.")


@dataclasses.dataclass
class NetworkOptions:
    """Network"""

    embedding_width: common.Positive = 64
    """Width of the word vectors, which encoder and decoder share."""
    units: common.Positive = 96
    """Width of encoder, decoder and context."""
    latent_units: common.Positive = 16
    """Width of z_enc and of z_t."""
    word_dropout: common.Dropout = 0.0
    """Share of the words that the decoder reads as unknown."""
    input_dropout: common.Dropout = 0.3
    """Of what enters the decoder's cell: the word vectors, of every model."""


Annealing = Literal["linear", "logistic", "cyclical", "none"]


@dataclasses.dataclass
class VariationalOptions:
    """Random variables"""

    annealing: Annealing = "linear"
    """Form of the weight of KL(z_enc), and of that alone, over the steps."""
    kl_start: common.NotNegativeFloat = 0.1
    """First weight of KL(z_enc), where linear."""
    kl_hold: common.NotNegative = 0
    """Steps before it grows."""
    kl_steps: common.Positive = 600
    """Steps from there until it is 1; of cyclical the length of a cycle, of logistic until it is one half."""
    step_annealing: Annealing = "none"
    """Form of the weight of the KLs of z_t. As long as it is small, the decoder learns to read the words to come from
    z_t."""
    step_kl_start: common.NotNegativeFloat = 0.01
    """First weight of the KLs of z_t, where step_annealing is linear."""
    step_kl_steps: common.Positive = 600
    """Steps until it is 1, as kl_steps, unless step_annealing is none."""
    free_bits: common.NotNegativeFloat = 0.5
    """Nats per dimension of z_enc that its KL leaves alone."""
    step_free_bits: common.NotNegativeFloat = 0.0
    """The same of each z_t, averaged over the steps."""
    step_log_scale: float = -3.0
    """First log sigma of z_t, and the logarithm of a factor on its first kernels: noise of 1 would hide the words."""
    auxiliary_weight: common.NotNegativeFloat = 1e-4
    """alpha, the weight of log p(c_t | z_t) in the model vrae_sa_aux."""
    auxiliary_hold: common.NotNegative = 0
    """Steps before it has that weight."""
    context_floor: float = -3.0
    """Smallest log sigma of p(c | z_t)."""


@dataclasses.dataclass
class ReportOptions(DecodeOptions):
    """Reports"""

    num_decoded: common.Positive = 200
    """How many validation sentences the columns of the log are computed on."""
    num_draws: common.Positive = 20
    """Draws of the importance-weighted bound."""
    max_bound: common.Positive = 500
    """Sentences that it is computed on."""


@dataclasses.dataclass
class SamplingOptions:
    """How words are drawn"""

    temperature: common.PositiveFloat = 1.0
    """Of the words' probabilities."""
    top_k: common.Positive | None = None
    """Draw one of so many words, the most probable ones."""
    top_p: common.Share | None = None
    """Draw one of the most probable words that have this probability together."""


# Defaults for two CPU cores and a few minutes on the embedded sentences.
@dataclasses.dataclass
class Options:
    """Train a language model with latent variables; without data options, on Python's documentation."""

    model: Literal[tuple(MODELS)] = "vrae_sa_aux"
    """One of the paper's tables."""
    run: common.RunOptions = common.group(common.RunOptions, out="runs/vrae")
    text: TextOptions = common.group(TextOptions)
    network: NetworkOptions = common.group(NetworkOptions)
    variational: VariationalOptions = common.group(VariationalOptions)
    fit: common.FitOptions = common.group(
        common.FitOptions, batch_size=32, epochs=20, learning_rate=4e-3, schedule="cosine"
    )
    sampling: SamplingOptions = common.group(SamplingOptions)
    reports: ReportOptions = common.group(ReportOptions)


@dataclasses.dataclass
class EvaluateVrae(common.EvaluateOptions):
    """Report on a part of the data of a run, or on other sentences."""

    text: common.File | None = None
    """Other sentences, in the form of the run's own."""
    skip_invalid: bool = False
    """Count invalid lines of this file instead of stopping."""
    num_draws: common.Positive | None = None
    """Draws of the importance-weighted bound instead of the run's."""
    max_bound: common.Positive | None = None
    """Sentences that it is computed on instead of the run's."""


@dataclasses.dataclass
class GenerateVrae(common.GenerateOptions):
    """Write new sentences; or, of lines of text, what their z_enc stands for."""

    mode: Literal["new", "reconstruct", "interpolate"] = "new"
    """new: from the priors. reconstruct: each line from the mean of its z_enc. interpolate: from each line to the
    next, separated by tabs."""
    num: common.Positive | None = None
    """How many new sentences, by default 10, or sentences of an interpolation with both ends, by default 5."""
    num_beams: common.Positive | None = None
    """Beams of a reconstruction; by default 1, which is greedy."""
    temperature: common.PositiveFloat | None = None
    """Of the words' probabilities, instead of the run's; so are top_k and top_p."""
    top_k: common.Positive | None = None
    """Draw one of so many words, the most probable ones."""
    top_p: common.Share | None = None
    """Draw one of the most probable words that have this probability together."""
    seed: common.Seed32 = 0
    """Of the draws."""

    def check(self):
        new = self.mode == "new"
        if new and self.input is not None:
            raise InputError("--input: new sentences need none; name a --mode.")
        if self.mode == "reconstruct" and self.num is not None:
            raise InputError("--num: a sentence is rebuilt once.")
        for name in ("num_beams",) if new else ("temperature", "top_k", "top_p"):
            if getattr(self, name) is not None:
                what = "new sentences are drawn" if new else "words are drawn of new sentences alone"
                raise InputError(f"--{name.replace('_', '-')}: {what}.")

    def drawn_by(self, sampling):
        """Return how words are drawn: as `SamplingOptions`, of the run, but for what is given here."""
        names = [field.name for field in dataclasses.fields(sampling)]
        return dataclasses.replace(
            sampling, **{name: getattr(self, name) for name in names if getattr(self, name) is not None}
        )

    def check_run(self, options):
        """Check what depends on the model of the run."""
        if self.mode != "new" and not MODELS[options.model].latent:
            raise InputError(f"--mode: the model {options.model} has no z_enc. Received: {self.mode}")


@dataclasses.dataclass
class SummarizeVrae:
    """Extract summaries: the sentences whose model is nearest to that of their document."""

    run: common.TrainedRun
    """Folder of a run."""
    documents: common.Folder | None = None
    """A folder of topics, NAME.txt.data of Opinosis or SGML documents in a folder for each topic of DUC; without one
    the topics of Python's documentation."""
    references: common.Folder | None = None
    """Summaries by people: a folder for each topic, as in Opinosis, or files that begin with its name."""
    max_words: common.Positive | None = None
    """Longest summary in words, what stands between spaces; 25 for Opinosis, otherwise 250."""
    document: Literal["mixture", "sequence"] = "mixture"
    """The model of a document: the moments of a mixture of its sentences' models, or that of all its words in turn."""
    max_overlap: common.Share = 1.0
    """Pass over a sentence of which the summary has a larger share of the words already; 1 for no such control."""
    skip_invalid: bool = False
    """Count empty documents and topics without references instead of stopping."""
    seed: common.Seed = 0
    """Of the random summaries."""
    out: str | None = None
    """Folder of the summaries and their figures; by default summaries/ in the run's. It may have those of the same
    documents."""

    def check(self):
        if self.references is not None and self.documents is None:
            raise InputError("--references: of which documents? Name --documents, too.")


@dataclasses.dataclass
class CompareVrae(common.CompareOptions):
    """Train models with several seeds on the same data, and print tables with differences and intervals."""

    out: str = "runs/vrae_compare"
    models: tuple[str, ...] = tuple(MODELS)
    baseline: str = "lstm"
    layout: tuple[Literal["paper"], ...] = ()
    """Also the columns of the paper's tables beside bounds."""


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
