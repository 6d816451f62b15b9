"""Metrics of captions against several references, and of attention against the regions that words are about.

The metrics of captions are those of pycocoevalcap (the extra `captions`). BLEU, ROUGE-L and METEOR lie between 0 and 1,
CIDEr between 0 and 10; papers print them times 100. Shapes: T words of a caption, R regions of its image.
"""

import functools
import itertools
import pathlib
import re
import subprocess
import sys

import numpy as np

from applications.common.errors import InputError

FIGURES = ("bleu_1", "bleu_2", "bleu_3", "bleu_4", "rouge_l", "cider", "meteor")
PTB, RULES = "PTBTokenizer", "rules without Java"

# The tokens of Stanford's PTBTokenizer but for the punctuation that is removed afterwards. Of the 25,014 captions of
# COCO val2017 all but 9 come out the same.
_TOKEN = re.compile(
    r"""<\w+> | -[lr][rsc]b-                              # <unk>, and what brackets become
      | \d+(?:[.,:]\d+)+                                  # 3.5, 10:30
      | (?:[a-z]\.){2,}(?:[a-z]\b)? | (?:mr|mrs|ms|dr|st|ave|blvd|rd|ft|jr|vs)\.   # u.s., mr.
      | \w+?(?=n't\b) | n't\b                             # is n't
      | (?:can(?=not\b)|gon(?=na\b)|wan(?=na\b))          # can not
      | \w+(?:[-/.]\w+)*                                  # t-shirt
      | '(?:s|m|d|re|ve|ll)\b                             # man 's
      | [^\s\w.,:;?!'"`‘“”–—…-]""",
    re.VERBOSE,
)
_BRACKETS = {"(": "-lrb-", ")": "-rrb-", "[": "-lsb-", "]": "-rsb-", "{": "-lcb-", "}": "-rcb-"}


def caption_metrics(hypotheses, references, java=True):
    """BLEU-1 to BLEU-4 of the corpus, ROUGE-L, CIDEr-D and METEOR 1.5, as pycocoevalcap computes them.

    CIDEr has the document frequencies of these references: those of one image are all 1, which makes it 0. The tokens
    are those of Stanford's PTBTokenizer in lower case, without punctuation. It and METEOR need Java; without Java rules
    that nearly always find the same tokens take its place, METEOR is left out, and a line on standard error says so
    once.

    Args:
        hypotheses: list of str, a caption an image; it may be empty.
        references: list of list of str, the references of each image.
        java: whether Java is used where it runs.

    Returns:
        Dict: "num_images", "num_empty" (hypotheses without a word), "tokenizer" ("PTBTokenizer", or "rules without
        Java"), and the value of each of `FIGURES` that there is.
    """
    require_pycocoevalcap()
    runs = java and _java_runs()
    if java and not runs:
        _say_without_java()
    if len(hypotheses) == 1:
        print("CIDEr of a single image is 0: no n-gram tells it from other images", file=sys.stderr)

    tokens = _ptb_tokens if runs else rule_tokens
    hypotheses = tokens([" ".join(caption.split()) for caption in hypotheses])
    # Apart from the hypotheses, as pycocoevalcap does it: the next line tells PTBTokenizer whether a full stop ends a
    # sentence.
    tokenized = iter(tokens([" ".join(caption.split()) for row in references for caption in row]))
    references = [list(itertools.islice(tokenized, len(row))) for row in references]
    report = {"num_images": len(hypotheses), "num_empty": hypotheses.count(""), "tokenizer": PTB if runs else RULES}
    values = _scores(hypotheses, references)
    if runs:
        values.append(_meteor(hypotheses, references))
    return report | {name: float(value) for name, value in zip(FIGURES, values)}


def _scores(hypotheses, references):
    """Return the `FIGURES` without METEOR, of tokens."""
    from pycocoevalcap.bleu.bleu import Bleu
    from pycocoevalcap.cider.cider import Cider
    from pycocoevalcap.rouge.rouge import Rouge

    truth, written = dict(enumerate(references)), {row: [text] for row, text in enumerate(hypotheses)}
    rouge = Rouge()
    # To the scorer a caption without words is one empty word, which a reference without words would match.
    rouges = [rouge.calc_score([x], y) if x else 0.0 for x, y in zip(hypotheses, references)]
    bleus, _ = Bleu(4).compute_score(truth, written, verbose=0)
    return [*bleus, np.mean(rouges), Cider().compute_score(truth, written)[0]]


def require_pycocoevalcap():
    """`InputError` without pycocoevalcap: for programs that would miss it only after hours of training."""
    try:
        import pycocoevalcap.bleu.bleu_scorer  # noqa: F401
    except ImportError as error:
        raise InputError('The metrics of captions need pycocoevalcap: pip install "keras_vattn[captions]"') from error


def rule_tokens(captions):
    """Return the tokens of each caption, joined by spaces: those of `caption_metrics` without Java."""
    found = (_TOKEN.findall(caption.lower().replace("’", "'")) for caption in captions)
    return [" ".join(_BRACKETS.get(token, token) for token in tokens) for tokens in found]


def pointing(weights, cells, words, kinds=None):
    """How often the largest weight of a word is at the region that the word is about.

    A word whose largest weight is at n regions counts 1/n if its own is among them, so that equal weights score
    exactly what chance does. The chance of a word is 1/R.

    Args:
        weights: list of (T, R) arrays, a caption each, with the regions that its image really has.
        cells: list of T ints for each caption: the region that each word is about, -1 for a word about none.
        words: list of T words for each caption.
        kinds: dict from the name of a kind of words to these words, such as the colours. Default: no kinds.

    Returns:
        Dict from "all", and each kind of which there is a word, to {"accuracy", "chance", "num_words"}.
    """
    found = {}
    for matrix, places, caption in zip(weights, cells, words, strict=True):
        matrix, places = np.asarray(matrix, np.float64), np.asarray(places, np.int64)
        num_regions = matrix.shape[1]
        for step in np.flatnonzero(places >= 0):
            largest = matrix[step] == matrix[step].max()
            pair = (largest[places[step]] / largest.sum(), 1.0 / num_regions)
            for kind in ("all", *(name for name, known in (kinds or {}).items() if caption[step] in known)):
                found.setdefault(kind, []).append(pair)
    order = [kind for kind in ("all", *(kinds or {})) if kind in found]
    means = {kind: np.mean(found[kind], axis=0) for kind in order}
    return {
        kind: {"accuracy": float(accuracy), "chance": float(chance), "num_words": len(found[kind])}
        for kind, (accuracy, chance) in means.items()
    }


# pycocoevalcap's classes of Java programs leave files in its folder, wait for ever for a Java that has ended, and keep
# it running.


def _ptb_tokens(captions):
    from pycocoevalcap.tokenizer import ptbtokenizer

    jar = pathlib.Path(ptbtokenizer.__file__).with_name(ptbtokenizer.STANFORD_CORENLP_3_4_1_JAR)
    options = ["-cp", jar, "edu.stanford.nlp.process.PTBTokenizer", "-preserveLines", "-lowerCase"]
    lines = _java("PTBTokenizer", options, captions)
    return [" ".join(token for token in line.split(" ") if token not in ptbtokenizer.PUNCTUATIONS) for line in lines]


def _meteor(hypotheses, references):
    """Return METEOR of the corpus: its statistics of each caption first, and then what they make together."""
    from pycocoevalcap.meteor import meteor

    jar = pathlib.Path(meteor.__file__).with_name(meteor.METEOR_JAR)
    options = ["-Xmx2G", "-jar", jar, "-", "-", "-stdio", "-l", "en", "-norm"]
    rows = [(*sentences, hypothesis) for hypothesis, sentences in zip(hypotheses, references)]
    lines = [" ||| ".join(("SCORE", *(sentence.replace("|||", " ") for sentence in row))) for row in rows]
    statistics = _java("METEOR", options, lines)
    # A score of each caption, and that of all.
    scores = _java("METEOR", options, [" ||| ".join(("EVAL", *statistics))], len(rows) + 1)
    try:
        return float(scores[-1])
    except ValueError as error:
        raise InputError(f"java: METEOR: expected a number. Received: {scores[-1]!r}") from error


def _java(name, options, lines, num_answers=None):
    """Return the lines that a Java program answers, as many as it is given by default; it ends in any case."""
    command = ["java", "-Dfile.encoding=UTF-8", *map(str, options)]
    content = "".join(f"{line}\n" for line in lines).encode("utf-8", errors="replace")
    result = subprocess.run(command, input=content, capture_output=True)
    answers = [line.decode("utf-8", errors="replace") for line in result.stdout.splitlines()]
    expected = len(lines) if num_answers is None else num_answers
    if result.returncode or len(answers) != expected:
        said = result.stderr.decode("utf-8", errors="replace").splitlines()
        # Java writes where the error occurred below it, and what it thinks of its options above it.
        error = next((line for line in said if "Error" in line or "Exception" in line), " ".join(said))
        raise InputError(
            f"java: {name}: expected {expected} lines and status 0. "
            f"Received: {len(answers)}, status {result.returncode}, {error!r}"
        )
    return answers


def _java_runs():
    try:
        return subprocess.run(["java", "-version"], capture_output=True).returncode == 0
    except OSError:
        return False


@functools.cache
def _say_without_java():
    print(
        "There is no Java: captions are split into tokens by rules of this program, and METEOR is left out",
        file=sys.stderr,
    )
