"""Converts documents of DUC, and their human summaries, to the format of applications.vrae.

    python -m tools.convert_duc DOCUMENTS [--references MODELS] --out FOLDER

DOCUMENTS contains one folder of SGML documents per topic; the folder has the name of the topic. MODELS contains the
human summaries. The file name of a summary begins with the name of its topic, with or without the last letter of the
name: D0701.M.250.A.1 belongs to D0701A. For each topic NAME, the tool writes FOLDER/topics/NAME.txt.data, with one
sentence per line, and the summaries FOLDER/references/NAME/1.gold, 2.gold and so on. To summarize the documents:

    python -m applications.vrae summarize --run RUN --documents FOLDER/topics --references FOLDER/references \
        --max-words 250
"""

import argparse
import html
import pathlib
import re

_TEXT = re.compile(r"<TEXT>(.*?)</TEXT>", re.S | re.I)
_TAG = re.compile(r"<[^>]*>")
# A full stop after a title or an initial does not end a sentence.
_SENTENCE_END = re.compile(
    r"(?<!\bMr\.)(?<!\bMs\.)(?<!\bDr\.)(?<!\bSt\.)(?<!\bMrs\.)(?<!\bGen\.)(?<!\bSen\.)(?<!\bGov\.)(?<!\bRep\.)"
    r"(?<!\b[A-Z]\.)(?<=[.!?])[\"'”’)]*\s+(?=[\"'“‘(]*[A-Z])"
)
_TOPIC = re.compile(r"D\d{4}[A-Z]", re.I)


def sentences_of(text):
    """Split an SGML document or a plain text into sentences."""
    sentences = []
    for body in _TEXT.findall(text) or [text]:
        for block in re.split(r"</?p>|\n\s*\n", body, flags=re.I):
            prose = " ".join(html.unescape(_TAG.sub(" ", block)).split())
            sentences += [each for each in _SENTENCE_END.split(prose) if any(x.isalnum() for x in each)]
    return sentences


def convert(documents, references, out):
    """Write the documents of each topic, and summaries if `references` is given. Return the topics."""
    documents, out, names = pathlib.Path(documents), pathlib.Path(out), []
    for folder in sorted(path for path in documents.iterdir() if path.is_dir() and not path.name.startswith(".")):
        sentences = [each for path in _files(folder.rglob("*")) for each in sentences_of(_read(path))]
        if not sentences:
            raise SystemExit(f"{folder}: expected at least one sentence in the documents. Received: none")
        _write(out / "topics" / f"{folder.name}.txt.data", sentences)
        names.append(folder.name)
        if references is not None:
            prefixes = {folder.name, folder.name[:-1] if _TOPIC.fullmatch(folder.name) else folder.name}
            paths = [x for x in _files(pathlib.Path(references).iterdir()) if x.name.split(".")[0] in prefixes]
            for number, path in enumerate(paths, start=1):
                _write(out / "references" / folder.name / f"{number}.gold", [" ".join(_read(path).split())])
    if not names:
        raise SystemExit(f"{documents}: expected a folder of documents for each topic")
    return names


def _read(path):
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return path.read_text(encoding="cp1252")


def _write(path, lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _files(paths):
    return sorted(path for path in paths if path.is_file() and not path.name.startswith("."))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("documents")
    parser.add_argument("--references")
    parser.add_argument("--out", required=True)
    arguments = parser.parse_args()
    try:
        topics = convert(arguments.documents, arguments.references, arguments.out)
    except OSError as error:
        raise SystemExit(f"error: {error}") from error
    print(f"written: {len(topics)} topics in {arguments.out}")
