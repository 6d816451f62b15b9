"""Reads questions and their images, cuts parts, fits the vocabularies, and makes batches."""

import dataclasses

import numpy as np
import tensorflow as tf

from applications.common.errors import InputError
from applications.text.options import PARTS
from applications.text.text import SPECIAL_TOKENS, Tokenizer, Vocabulary
from applications.vision import scenes
from applications.vision.codec import RegionCodec, Sources, open_sources
from applications.vision.program import Codec
from applications.vision.program import load_codec as load_codec  # found here by the commands
from applications.vqa.answers import Votes, answer_vocabulary
from applications.vqa.questions import Questions, read_questions, split_by_image

QUESTIONS_PER_SCENE = 6
# updown looks at one region: a region answers each question, or no region has what it asks for.
BUILT_IN_TYPES = ("color", "shape", "attribute", "number", "opinion")


@dataclasses.dataclass
class Part:
    """Questions and their images, as they were read, and the objects in images by id where they are known."""

    questions: Questions
    sources: Sources
    tags: dict | None = None


def read(options):
    """Return the parts that the options describe: files, or questions about rendered scenes."""
    asked, tags = options.questions, None
    if asked.train_questions is None:
        parts, tags = embedded(scenes.scenes(asked.num_scenes))
    else:
        files = {part: (getattr(asked, f"{part}_questions"), getattr(asked, f"{part}_annotations")) for part in PARTS}
        parts = {part: read_questions(*pair) for part, pair in files.items() if pair[0] is not None}
    sources = sources_of(options).some([image for questions in parts.values() for image in questions.images])
    if "valid" not in parts:
        parts["train"], parts["valid"] = split_by_image(parts["train"], asked.valid_fraction, 0)
    if asked.test_from_validation is not None and "test" not in parts:
        parts["valid"], parts["test"] = split_by_image(
            parts["valid"], asked.test_from_validation, 1, "--test-from-validation"
        )
    return {part: Part(parts[part], sources, tags) for part in PARTS if part in parts}


def read_other(options, evaluation):
    """Return the questions of the files that the options of `evaluate` name, `None` if they name none."""
    if evaluation.questions is None:
        return None
    questions = read_questions(evaluation.questions, evaluation.annotations)
    return Part(questions, sources_of(options).some(questions.images))


def sources_of(options):
    """Return the `Sources` of a run."""
    return open_sources(options.regions, options.questions.num_scenes, ("color", "shape"))


def embedded(rendered):
    """Return questions about rendered scenes, 80 % for training, and the words for their objects."""
    columns = scenes.question_columns(rendered, QUESTIONS_PER_SCENE, BUILT_IN_TYPES)
    questions = Questions(
        [str(row) for row in range(len(columns["row"]))],
        [str(row) for row in columns["row"]],
        columns["text"],
        columns["votes"],
        columns["answer_type"],
        columns["cell"],
    )
    rest, test = split_by_image(questions, 0.1, 2)
    train, valid = split_by_image(rest, 1 / 9, 0)
    tags = {str(row): [f"{each.color}-{each.shape}" for each in scene.objects] for row, scene in enumerate(rendered)}
    return {"train": train, "valid": valid, "test": test}, tags


def region_options(options):
    """Return the `RegionOptions` of a run: of rendered scenes the regions are their cells."""
    regions = options.regions
    if options.questions.train_questions is not None:
        return regions
    own = {"grid": regions.grid or scenes.GRID, "image_size": regions.image_size or scenes.GRID * 16}
    return dataclasses.replace(regions, **own)


def codec_of(options, part):
    """Return the codec of the training part; a network that learns words is trained on its answers."""
    asked, questions = options.questions, part.questions
    vocabulary = Vocabulary.fit(Tokenizer().count(questions.texts), len(SPECIAL_TOKENS) + 10**6)
    answers = answer_vocabulary(questions.answers, asked.min_answer_count, asked.max_answers)
    words = words_of(questions) if part.tags is None else {image: part.tags[image] for image in questions.images}
    regions = RegionCodec.fit(region_options(options), part.sources, questions.images, words)
    return Codec(vocabulary, regions, answers)


def other_images(rows):
    """Return for the row of an image the row of another: the next in a random order."""
    images, numbers = np.unique(rows, return_inverse=True)
    if len(images) < 2:
        raise InputError("--control: shuffled_images needs questions about two images at least.")
    order = np.random.default_rng(0).permutation(len(images))
    next_one = np.empty_like(order)
    next_one[order] = np.roll(order, 1)
    return images[next_one[numbers]]


def words_of(questions):
    """Return the words of the answers about images, a dictionary from their ids; yes and no are left out."""
    words = {}
    for image, answer, kind in zip(questions.images, questions.answers, questions.types, strict=True):
        if kind != "yes/no":
            words.setdefault(image, []).extend(answer.split())
    return words


@dataclasses.dataclass
class EncodedPart:
    """A part as the model sees it: rows of the images in the regions, int64 (N,), ids of the questions' words, int32
    (N, L), votes, and counts for the log."""

    questions: Questions
    sources: Sources
    codec: Codec
    rows: np.ndarray
    words: np.ndarray
    votes: Votes
    report: dict

    def __len__(self):
        return len(self.rows)

    def sample(self, count):
        """Return the rows of at most so many questions, drawn at random, ascending; and the part of these rows."""
        rows = np.sort(np.random.default_rng(0).permutation(len(self))[:count])
        return rows, self.some(rows)

    def some(self, rows):
        """Return the part of some rows."""
        votes = dataclasses.replace(self.votes, ids=self.votes.ids[rows], counts=self.votes.counts[rows])
        questions, images, words = self.questions.rows(rows), self.rows[rows], self.words[rows]
        return dataclasses.replace(self, questions=questions, rows=images, words=words, votes=votes)

    def num_batches(self, batch_size):
        """Return how many batches an epoch of training has: of the questions with a known answer."""
        return -(-int(self.votes.usable.sum()) // batch_size)

    def batches(self, options, first_epoch=None, answered=True):
        """Return batches of (inputs, targets), of the questions with a known answer; without answers of all questions,
        (inputs,). All come once, in their order; from a first epoch on they come without an end, shuffled."""
        batch_size = options.fit.batch_size
        kept = np.flatnonzero(self.votes.usable) if answered else np.arange(len(self))
        with tf.device("CPU:0"):
            image, question = tf.constant(self.rows[kept]), tf.constant(self.words[kept])
            ids, counts = tf.constant(self.votes.ids[kept]), tf.constant(self.votes.counts[kept])
        scores, seed = options.questions.labels == "soft", options.run.seed

        def of_epoch(epoch):
            order = tf.range(len(kept))
            noise = tf.random.stateless_uniform([len(kept)], tf.stack([seed, 2 * epoch + 1]))
            order = tf.random.experimental.stateless_shuffle(order, tf.stack([seed, 2 * epoch]))
            return tf.data.Dataset.from_tensor_slices((order, noise)).batch(batch_size)

        def of_rows(rows, noise):
            inputs = {"image": tf.gather(image, rows), "question": tf.gather(question, rows)}
            if not answered:
                return (inputs,)
            answers, people = tf.gather(ids, rows), tf.gather(counts, rows)
            if scores:
                each = tf.minimum(people / 3.0, 1.0)[..., None] * tf.one_hot(answers, self.votes.num_answers)
                inputs["answer"] = tf.reduce_sum(each, axis=1)
            else:
                # The answer of one of the people.
                shares = tf.cumsum(people, axis=1) / tf.reduce_sum(people, axis=1, keepdims=True)
                last = tf.argmax(tf.where(people > 0, tf.range(people.shape[1]), -1), axis=1, output_type=tf.int32)
                drawn = tf.reduce_sum(tf.cast(shares <= noise[:, None], tf.int32), axis=1)
                inputs["answer"] = tf.gather(answers, tf.minimum(drawn, last), batch_dims=1)
            return inputs, inputs["answer"]

        if first_epoch is None:
            # The same answers in every epoch: for a loss that epochs are compared by.
            noise = tf.random.stateless_uniform([len(kept)], [seed, -1])
            dataset = tf.data.Dataset.from_tensor_slices((tf.range(len(kept)), noise)).batch(batch_size)
        else:
            dataset = tf.data.Dataset.range(first_epoch, np.iinfo(np.int64).max).flat_map(of_epoch)
        blind = options.questions.control == "question_only"
        codec = self.codec.regions
        return codec.with_regions(dataset.map(of_rows), codec.regions_of(self.sources), blind)


def encode(options, codec, part, training=False):
    """Encode a part; a control changes which image a question is about."""
    questions, length = part.questions, options.questions.max_question_length
    regions = codec.regions.regions_of(part.sources)
    rows = regions.rows_of(questions.images)
    if options.questions.control == "shuffled_images":
        rows = other_images(rows)
    arrays, counts = codec.words.encode_numpy(questions.texts, length)
    words = np.stack([np.pad(ids, (0, length - len(ids))) for ids in arrays]).astype(np.int32)
    votes = Votes.of(questions.votes, codec.answers)
    report = {
        "questions": len(questions),
        "images": len(set(questions.images)),
        "questions_cut": counts.num_truncated,
        "unknown_words": counts.num_unknown,
        "without_a_known_answer": int(np.sum(~votes.usable)),
        "images_with_more_regions": (part.sources.regions or regions).num_cut(codec.regions.max_regions),
    }
    if not np.any(votes.usable):
        raise InputError(
            f"none of {len(questions)} questions has one of the {len(codec.answers)} answers that the model knows, "
            f"which training questions give {options.questions.min_answer_count} times at least; name other questions, "
            "for validation with --valid-questions, or hold out more with --valid-fraction."
        )
    return EncodedPart(questions, part.sources, codec, rows, words, votes, report)
