"""Score captions against several references, and attention weights against the region that each word describes.

The package pycocoevalcap (our extra `captions`) computes the caption metrics. BLEU, ROUGE-L and METEOR lie between 0
and 1, and CIDEr between 0 and 10. Papers report these values times 100.
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

# Tokens of Stanford's PTBTokenizer, without punctuation; only 9 of the 25,014 captions of COCO val2017 differ.
_TOKEN = re.compile(
    r"""<\w+> | -[lr][rsc]b-                              # <unk>, replaced brackets
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
    """Return corpus BLEU-1 to BLEU-4, ROUGE-L, CIDEr-D and METEOR 1.5, as pycocoevalcap computes them.

    CIDEr takes document frequencies of n-grams from `references`, so the CIDEr of a single image is 0. Stanford's
    PTBTokenizer splits captions into lower-case tokens without punctuation. PTBTokenizer and METEOR need Java. Without
    Java, `rule_tokens` replaces PTBTokenizer, METEOR is skipped, and a warning is printed to standard error.

    Args:
        hypotheses: One caption per image; a caption may be empty.
        references: A list of captions for each image.
        java: Whether to use Java if it is installed.

    Returns:
        Dictionary with "num_images", "num_empty" (hypotheses without words), "tokenizer" (`PTB` or `RULES`), and the
        metrics in `FIGURES`; "meteor" is missing without Java.
    """
    require_pycocoevalcap()
    from pycocoevalcap.bleu.bleu import Bleu
    from pycocoevalcap.cider.cider import Cider
    from pycocoevalcap.rouge.rouge import Rouge

    has_java = java and _java_runs()
    if java and not has_java:
        _warn_without_java()
    if len(hypotheses) == 1:
        print("CIDEr of a single image is 0, since it compares n-grams across images", file=sys.stderr)

    hypotheses, references = _tokenized(hypotheses, references, has_java)
    report = {"num_images": len(hypotheses), "num_empty": hypotheses.count(""), "tokenizer": PTB if has_java else RULES}
    truth, written = dict(enumerate(references)), {row: [text] for row, text in enumerate(hypotheses)}
    rouge = Rouge()
    # If a caption and a reference were both empty, the scorer would return 1.
    rouges = [rouge.calc_score([x], y) if x else 0.0 for x, y in zip(hypotheses, references)]
    bleus, _ = Bleu(4).compute_score(truth, written, verbose=0)
    values = [*bleus, np.mean(rouges), Cider().compute_score(truth, written)[0]]
    if has_java:
        values.append(_meteor(hypotheses, references))
    return report | {name: float(value) for name, value in zip(FIGURES, values)}


def cider_of_images(hypotheses, references, java=True):
    """Return the CIDEr-D of each image as an array; `caption_metrics` returns the mean of this array."""
    from pycocoevalcap.cider.cider import Cider

    hypotheses, references = _tokenized(hypotheses, references, java and _java_runs())
    written = {row: [text] for row, text in enumerate(hypotheses)}
    return Cider().compute_score(dict(enumerate(references)), written)[1]


def _tokenized(hypotheses, references, java):
    tokens = _ptb_tokens if java else rule_tokens
    hypotheses = tokens([" ".join(caption.split()) for caption in hypotheses])
    # PTBTokenizer reads the next line to decide whether a full stop ends a sentence. So tokenise references separately
    # from hypotheses, as pycocoevalcap does.
    tokenized = iter(tokens([" ".join(caption.split()) for row in references for caption in row]))
    return hypotheses, [list(itertools.islice(tokenized, len(row))) for row in references]


def require_pycocoevalcap():
    """Raise `InputError` if pycocoevalcap is missing."""
    try:
        import pycocoevalcap.bleu.bleu_scorer  # noqa: F401
    except ImportError as error:
        raise InputError('Caption metrics require pycocoevalcap: pip install "keras_vattn[captions]"') from error


def rule_tokens(captions):
    """Return the tokens of each caption, joined by spaces, without Java."""
    tokens = (_TOKEN.findall(caption.lower().replace("’", "'")) for caption in captions)
    return [" ".join(_BRACKETS.get(token, token) for token in row) for row in tokens]


def pointing(weights, cells, words, kinds):
    """Return the fraction of words for which the attention points at the region described by the word.

    The attention points at the region with the largest weight. If n regions have this weight, each of them counts as
    1/n. Equal weights therefore score exactly the chance level 1/R.

    Args:
        weights: For each caption, an array (T, R) with the weights of each word.
        cells: For each caption, the region of each word, or -1 if the word describes no region.
        words: For each caption, a list of words.
        kinds: Dictionary that maps the name of a set of words, such as "color", to these words.

    Returns:
        Dictionary with {"accuracy", "chance", "num_words"} for "all" words and for each set of words that occurs.
    """
    pairs = {kind: [] for kind in ("all", *kinds)}
    for matrix, regions, caption in zip(weights, cells, words, strict=True):
        for row, cell, word in zip(matrix, regions, caption):
            if cell >= 0:
                pair = (row[cell] == row.max()) / np.count_nonzero(row == row.max()), 1.0 / len(row)
                for kind in ("all", *(name for name, members in kinds.items() if word in members)):
                    pairs[kind].append(pair)
    means = {kind: np.mean(values, axis=0).tolist() for kind, values in pairs.items() if values}
    return {
        kind: {"accuracy": accuracy, "chance": chance, "num_words": len(pairs[kind])}
        for kind, (accuracy, chance) in means.items()
    }


# These functions replace the Java calls in pycocoevalcap, which never stop Java, wait forever if Java has ended, and
# write files into the folder of the package.


def _ptb_tokens(captions):
    from pycocoevalcap.tokenizer import ptbtokenizer

    jar = pathlib.Path(ptbtokenizer.__file__).with_name(ptbtokenizer.STANFORD_CORENLP_3_4_1_JAR)
    options = ["-cp", jar, "edu.stanford.nlp.process.PTBTokenizer", "-preserveLines", "-lowerCase"]
    lines = _java("PTBTokenizer", options, captions)
    return [" ".join(token for token in line.split(" ") if token not in ptbtokenizer.PUNCTUATIONS) for line in lines]


def _meteor(hypotheses, references):
    from pycocoevalcap.meteor import meteor

    jar = pathlib.Path(meteor.__file__).with_name(meteor.METEOR_JAR)
    options = ["-Xmx2G", "-jar", jar, "-", "-", "-stdio", "-l", "en", "-norm"]
    rows = [(*sentences, hypothesis) for hypothesis, sentences in zip(hypotheses, references)]
    lines = [" ||| ".join(("SCORE", *(sentence.replace("|||", " ") for sentence in row))) for row in rows]
    statistics = _java("METEOR", options, lines)
    # METEOR prints a score per caption, then the corpus score.
    scores = _java("METEOR", options, [" ||| ".join(("EVAL", *statistics))], len(rows) + 1)
    try:
        return float(scores[-1])
    except ValueError as error:
        raise InputError(f"java: METEOR: expected a number. Received: {scores[-1]!r}") from error


def _java(name, options, lines, num_outputs=None):
    """Return the output lines of a Java program, by default one line per input line."""
    command = ["java", "-Dfile.encoding=UTF-8", *map(str, options)]
    content, text = "".join(f"{line}\n" for line in lines), {"encoding": "utf-8", "errors": "replace"}
    result = subprocess.run(command, input=content, capture_output=True, **text)
    outputs, expected = result.stdout.splitlines(), len(lines) if num_outputs is None else num_outputs
    if result.returncode or len(outputs) != expected:
        messages = result.stderr.splitlines()
        # Java prints the error message between remarks about options and a stack trace.
        error = next((line for line in messages if "Error" in line or "Exception" in line), " ".join(messages))
        raise InputError(
            f"java: {name}: expected {expected} lines and exit status 0. "
            f"Received: {len(outputs)}, exit status {result.returncode}, {error!r}"
        )
    return outputs


def _java_runs():
    try:
        return subprocess.run(["java", "-version"], capture_output=True).returncode == 0
    except OSError:
        return False


@functools.cache
def _warn_without_java():
    print(
        "Java is missing: captions are tokenised by built-in rules, and METEOR is skipped",
        file=sys.stderr,
    )
