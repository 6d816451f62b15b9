"""Documents to summarise, and the summaries that people wrote, in published formats.

Opinosis: a file NAME.txt.data for each topic, a sentence a line; references in a folder NAME, NAME.1.gold and so on.
DUC: a folder for each topic, of SGML documents; references are files that begin with the topic's name, or stand in a
folder of that name.
"""

import contextlib
import dataclasses
import html
import pathlib
import re

from applications.common.errors import InputError
from applications.text import python_topics

_TEXT = re.compile(r"<TEXT>(.*?)</TEXT>", re.S | re.I)
_TAG = re.compile(r"<[^>]*>")
# Not after a title or an initial.
_SENTENCE_END = re.compile(
    r"(?<!\bMr\.)(?<!\bMs\.)(?<!\bDr\.)(?<!\bSt\.)(?<!\bMrs\.)(?<!\bGen\.)(?<!\bSen\.)(?<!\bGov\.)(?<!\bRep\.)"
    r"(?<!\b[A-Z]\.)(?<=[.!?])[\"'”’)]*\s+(?=[\"'“‘(]*[A-Z])"
)
_SKIP_HINT = "leave such topics out with --skip-invalid"
# DUC names a topic D0701A and its references D0701.M.250.A.1: the last letter is the group of assessors.
_DUC_TOPIC = re.compile(r"D\d{4}[A-Z]", re.I)


@dataclasses.dataclass
class Topic:
    """A document.

    Attributes:
        name: str.
        sentences: list of str, in their order.
        references: list of str, summaries by people; empty where there are none.
    """

    name: str
    sentences: list
    references: list = dataclasses.field(default_factory=list)


def read_topics(folder, references=None, skip_invalid=False):
    """Return the `Topic`s of a folder, in the order of their names, and what was left out: documents without a
    sentence, topics without a reference.

    Raises:
        InputError: for a folder without documents, a document without a sentence, a topic without references where
            these are asked for, and a file that is no text.
    """
    folder, left_out = pathlib.Path(folder), []
    folders = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    found = [(path.name.removesuffix(".txt.data"), [path]) for path in _files(folder.glob("*.txt.data"))]
    found += [(path.name, _files(path.rglob("*"))) for path in folders]
    inner = next(folder.glob("*/*.txt.data"), None)
    if inner is not None:
        raise InputError(f"{folder}: the documents are in {inner.parent}; name that folder")
    topics = []
    for name, paths in found:
        sentences = [sentence for path in paths for sentence in _sentences(path)]
        if not sentences:
            if not skip_invalid:
                raise InputError(f"{paths[0] if paths else folder / name}: no sentence in the document; {_SKIP_HINT}")
            left_out.append(name)
            continue
        topics.append(Topic(name, sentences))
    if not topics:
        raise InputError(f"{folder}: no documents; expected NAME.txt.data files, or a folder for each topic")
    if references is None:
        return topics, left_out
    kept = []
    for topic in topics:
        topic.references = _references(pathlib.Path(references), topic.name)
        if topic.references:
            kept.append(topic)
        elif skip_invalid:
            left_out.append(topic.name)
        else:
            raise InputError(f"{references}: no reference for the topic {topic.name}; {_SKIP_HINT}")
    if not kept:
        raise InputError(f"{references}: no reference for any of {len(topics)} topics")
    return kept, left_out


def embedded_topics(min_sentences=20):
    """Return the topics of Python's documentation that have so many sentences."""
    return [
        Topic(name, sentences) for name, sentences in python_topics.topics().items() if len(sentences) >= min_sentences
    ]


def _sentences(path):
    text = _read(path)
    if path.name.endswith(".data"):
        return [line.strip() for line in text.split("\n") if any(x.isalnum() for x in line)]
    bodies = _TEXT.findall(text) or [text]
    found = []
    for body in bodies:
        for block in re.split(r"</?p>|\n\s*\n", body, flags=re.I):
            prose = " ".join(html.unescape(_TAG.sub(" ", block)).split())
            found += [sentence for sentence in _SENTENCE_END.split(prose) if any(x.isalnum() for x in sentence)]
    return found


def _references(folder, name):
    inside = folder / name
    if inside.is_dir():
        paths = _files(inside.iterdir())
    else:
        prefixes = {name, name[:-1] if _DUC_TOPIC.fullmatch(name) else name}
        paths = [path for path in _files(folder.iterdir()) if path.name.split(".")[0] in prefixes]
    return [text for text in (" ".join(_read(path).split()) for path in paths) if text]


def _read(path):
    content = path.read_bytes()
    # Opinosis has typographic quotation marks of Windows.
    for encoding in ("utf-8-sig", "cp1252"):
        with contextlib.suppress(UnicodeDecodeError):
            text = content.decode(encoding)
            if "\0" not in text:
                return text
    raise InputError(f"{path}: neither UTF-8 nor text of Windows")


def _files(paths):
    """Return the files among paths, in the order of their names, but for hidden ones."""
    return sorted(path for path in paths if path.is_file() and not path.name.startswith("."))
