"""Documents to summarise, and summaries that people wrote, as Opinosis has them: a file NAME.txt.data for each topic, a
sentence a line; references in a folder NAME, NAME.1.gold and so on. `tools.convert_duc` makes these of DUC's files."""

import contextlib
import dataclasses
import pathlib

from applications.common.errors import InputError
from applications.text import python_topics

_ENDING = ".txt.data"


@dataclasses.dataclass
class Topic:
    """The name of a document, its sentences in their order, and its references, which may be none."""

    name: str
    sentences: list
    references: list = dataclasses.field(default_factory=list)


def read_topics(folder, references=None):
    """Return the `Topic`s of a folder; each needs a sentence, and a reference in a folder of references."""
    folder, topics = pathlib.Path(folder), []
    for path in _files(folder, f"*{_ENDING}"):
        # A document of an old Mac ends its lines with a carriage return alone.
        lines = (line.strip() for line in _text(path).replace("\r", "\n").split("\n"))
        topic = Topic(path.name.removesuffix(_ENDING), [line for line in lines if any(x.isalnum() for x in line)])
        if references is not None:
            paths = _files(pathlib.Path(references, topic.name), "*")
            topic.references = [text for text in (" ".join(_text(each).split()) for each in paths) if text]
            if not topic.references:
                raise InputError(f"{references}: no reference for the topic {topic.name}")
        if not topic.sentences:
            raise InputError(f"{path}: no sentence in the document")
        topics.append(topic)
    if not topics:
        inner = next(folder.glob(f"*/*{_ENDING}"), None)
        hint = "" if inner is None else f"; there are some in {inner.parent}"
        raise InputError(f"{folder}: no files NAME{_ENDING}{hint}")
    return topics


def embedded_topics(min_sentences=20):
    """Return the topics of Python's documentation that have so many sentences."""
    topics = python_topics.topics().items()
    return [Topic(name, sentences) for name, sentences in topics if len(sentences) >= min_sentences]


def _text(path):
    content = path.read_bytes()
    # Opinosis has typographic quotation marks of Windows.
    for encoding in ("utf-8-sig", "cp1252"):
        with contextlib.suppress(UnicodeDecodeError):
            text = content.decode(encoding)
            if "\0" not in text:
                return text
    raise InputError(f"{path}: neither UTF-8 nor text of Windows")


def _files(folder, pattern):
    return sorted(path for path in folder.glob(pattern) if path.is_file() and not path.name.startswith("."))
