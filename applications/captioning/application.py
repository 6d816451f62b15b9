"""Image captioning as a program."""

import numpy as np

import keras_vattn
from applications.captioning import data, model, tables
from applications.captioning.captions import read_parts
from applications.captioning.options import PROGRAM
from applications.captioning.report import evaluate, looks
from applications.captioning.serve import Captioner
from applications.common.runs import write_json
from applications.text.pairs import evenly, write_samples
from applications.text.readers import read_input
from applications.vision.codec import boxes_of
from applications.vision.program import ImageApplication, answers_about

NUM_PICTURES = 3
# The figures behind the pictures of a run.
PICTURES = "pictures.json"


class Captioning(ImageApplication):
    """Image captioning, of Fan et al. 2020."""

    program = PROGRAM
    columns = tables.COLUMNS
    curves = {
        "perplexity": "perplexity, training",
        "val_perplexity": "perplexity, validation",
        "val_cider": "CIDEr, validation, greedy",
    }
    layouts = {"fan": tables.fan}
    module = Captioner

    def read(self, options):
        return data.load(options)

    def encode(self, options, codec, part, training=False):
        return data.EncodedPart.of(options, codec, part)

    def build(self, options, codec):
        regions = codec.regions
        return model.build(options, len(codec.vocabulary), regions.max_regions, regions.model_width)

    def read_other(self, options, evaluation):
        if evaluation.captions is None:
            return None
        captions, sources = read_parts({"test": evaluation.captions})["test"], data.sources_of(options)
        sources.source.rows_of(captions.ids)
        return data.Part(captions, sources)

    def evaluate(self, run, part, evaluation=None):
        return evaluate(run, part, *(() if evaluation is None else (evaluation.num_beams, evaluation.num_draws)))

    def files(self, outputs):
        ids = outputs["part"].captions.ids
        return {"captions": ["\t".join(row) for row in zip(ids, outputs["hypotheses"], strict=True)]}

    def heading(self, record):
        report = record["report"]
        text = f"{report['num_images']} {record['split']} images with {report['num_captions']} captions; "
        text += f"tokens of the metrics: {report['captions']['tokenizer']}"
        draws = report["likelihood"].get("num_draws")
        return text + (f"; predictive PPL of {draws} draws" if draws else "")

    def example_of(self, part):
        return part.captions.ids[0]

    def report(self, run, part, record, outputs):
        pictures = pictures_of(run, part)
        write_json(run.folder.file(PICTURES), {"model": run.options.model, "pictures": pictures})
        for picture in pictures:
            draw_caption(picture, part, run.folder.file(f"pictures/{picture['image']}.png"))
        rows = zip(part.captions.ids, outputs["hypotheses"], part.captions.captions, strict=True)
        samples = [
            [("image", image), ("caption", text), *(("reference", reference) for reference in references)]
            for image, text, references in rows
        ]
        return write_samples(run.folder.file("samples.txt"), samples)

    def generate(self, run, options):
        lines = [line.strip() for line in read_input(options)]
        captioner = Captioner(run)

        def caption(numbers, regions):
            return [text.decode() for text in captioner.generate_features(*regions)["captions"].numpy()]

        place = options.input or "standard input"
        yield from answers_about(run.codec.regions, lines, lambda: data.sources_of(run.options), place, caption)

    def words_of(self, options):
        if options.captions is None:
            return None
        return data.words_of_images(read_parts({"train": options.captions})["train"])

    def compared(self, comparison):
        pictures = {run.name: comparison.read(run, PICTURES)["pictures"] for run in comparison.of_first_seed}
        parts = self.read(comparison.planned[0].options)
        draw_references(pictures, parts.get("test", parts["valid"]), comparison.folder)
        return []


def pictures_of(run, part):
    """Return where the model looks in some images for the words of its own caption, and of the first reference."""
    chosen = evenly(len(part), NUM_PICTURES)
    references = [part.captions.captions[index] for index in chosen]
    own, of_reference = looks(run, part, chosen), looks(run, part, chosen, [row[0] for row in references])
    boxes = boxes_of(run.codec.regions, part.sources, part.rows[chosen])
    ids = [part.captions.ids[index] for index in chosen]
    names = ("image", "references", "caption", "reference", "boxes")
    return [dict(zip(names, row)) for row in zip(ids, references, own, of_reference, boxes, strict=True)]


def draw_caption(picture, part, path):
    """Draw where a model looks for each word of its caption; of BAM a draw from the prior above a draw from the
    posterior, Figure 1 of Fan et al. 2020."""
    looks = picture["caption"]
    kinds = [kind for kind in ("prior", "posterior") if kind in looks]
    rows = [looks[kind] for kind in kinds or ("weights",)]
    title = " ".join(looks["words"]) + ("; a draw for each word" if kinds else "")
    _draw(picture, part, looks["words"], rows, kinds or None, title, path)


def draw_references(of_models, part, folder):
    """Draw where models look for the words of the same references, a row for each model, a PNG for each image; the
    pictures are a dictionary from the names of models."""
    for index, picture in enumerate(next(iter(of_models.values()))):
        words = picture["reference"]["words"]
        rows = [pictures[index]["reference"]["weights"] for pictures in of_models.values()]
        path = folder / f"attention_{picture['image']}.png"
        _draw(picture, part, words, rows, list(of_models), f"reference: {' '.join(words)}", path)


def _draw(picture, part, words, rows, labels, title, path):
    # A run on features may lack images or boxes, and a caption may lack words.
    if part.sources.images is None or not np.any(picture["boxes"]) or not words:
        return
    image = part.sources.images.read(part.sources.images.rows_of([picture["image"]])[0])
    weights = [row for of_row in rows for row in of_row]
    keras_vattn.plots.image_attention(image, weights, picture["boxes"], words, labels, title, path=path)


APPLICATION = Captioning()
