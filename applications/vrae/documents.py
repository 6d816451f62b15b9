"""Read documents and reference summaries in the layout of Opinosis. Each topic is a file NAME.txt.data with one
sentence per line. Its reference summaries are the files in folder NAME. `tools.convert_duc` writes this layout."""

import contextlib
import dataclasses
import pathlib

from applications.common.errors import InputError
from applications.text import python_topics

_ENDING = ".txt.data"


@dataclasses.dataclass
class Topic:
    """A topic with sentences in document order, and reference summaries, if any."""

    name: str
    sentences: list
    references: list = dataclasses.field(default_factory=list)


def read_topics(folder, references=None):
    """Read the `Topic`s in a folder. If `references` names a folder, also read the reference summaries."""
    folder, topics = pathlib.Path(folder), []
    for path in _files(folder, f"*{_ENDING}"):
        # In files from old Macs, a line ends with only a carriage return.
        lines = (line.strip() for line in _text(path).replace("\r", "\n").split("\n"))
        topic = Topic(path.name.removesuffix(_ENDING), [line for line in lines if any(x.isalnum() for x in line)])
        if references is not None:
            paths = _files(pathlib.Path(references, topic.name), "*")
            topic.references = [text for text in (" ".join(_text(file).split()) for file in paths) if text]
            if not topic.references:
                raise InputError(f"{references}: expected a reference for the topic {topic.name}")
        if not topic.sentences:
            raise InputError(f"{path}: expected a document with at least one sentence")
        topics.append(topic)
    if not topics:
        inner = next(folder.glob(f"*/*{_ENDING}"), None)
        hint = "" if inner is None else f"; found such files in {inner.parent}"
        raise InputError(f"{folder}: expected files NAME{_ENDING}{hint}")
    return topics


def embedded_topics(min_sentences=20):
    """Return the topics in Python's documentation that have at least `min_sentences` sentences."""
    topics = python_topics.topics().items()
    return [Topic(name, sentences) for name, sentences in topics if len(sentences) >= min_sentences]


def _text(path):
    content = path.read_bytes()
    # Opinosis contains quotation marks in Windows-1252.
    for encoding in ("utf-8-sig", "cp1252"):
        with contextlib.suppress(UnicodeDecodeError):
            text = content.decode(encoding)
            if "\0" not in text:
                return text
    raise InputError(f"{path}: expected UTF-8 or Windows-1252 text")


def _files(folder, pattern):
    return sorted(path for path in folder.glob(pattern) if path.is_file() and not path.name.startswith("."))
