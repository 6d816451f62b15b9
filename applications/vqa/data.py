"""Reads questions and what they are about, cuts parts, fits the vocabularies, and makes batches."""

import dataclasses

import numpy as np
import tensorflow as tf

from applications.common.errors import InputError
from applications.text.options import PARTS
from applications.text.text import SPECIAL_TOKENS, Tokenizer, Vocabulary
from applications.vision import scenes
from applications.vision.codec import RegionCodec, Sources, open_sources
from applications.vision.images import Images
from applications.vision.program import Codec, require_some
from applications.vqa.answers import Votes, answer_vocabulary
from applications.vqa.questions import Questions, read_questions, split_by_image

# Seed of the embedded scenes, the same for all runs.
SCENES_SEED = 0
QUESTIONS_PER_SCENE = 6


@dataclasses.dataclass
class Part:
    """Questions and the images that they are about, as they were read.

    Attributes:
        questions: `Questions`.
        sources: `Sources`.
        tags: Dictionary from the ids of images to what is in them, for the network words; `None` where the answers are
            all that is known.
    """

    questions: Questions
    sources: Sources
    tags: dict | None = None

    @property
    def words(self):
        """What is said about the images of the questions, a dictionary from their ids to words."""
        if self.tags is None:
            return words_of(self.questions)
        return {image: self.tags[image] for image in dict.fromkeys(self.questions.images)}


def load(options):
    """Return the parts that the options describe: files, or questions about rendered scenes."""
    given = options.questions
    images, tags = None, None
    if given.train_questions is None:
        found, images, tags = embedded(given)
    else:
        found = {}
        for part in PARTS:
            path = getattr(given, f"{part}_questions")
            if path is not None:
                found[part] = read_questions(path, getattr(given, f"{part}_annotations"), given.skip_invalid)
    sources = open_sources(options.regions, images)
    found = {part: with_images(questions, sources, options) for part, questions in found.items()}
    if "valid" not in found:
        found["train"], found["valid"] = split_by_image(found["train"], given.valid_fraction, given.split_seed)
    if given.test_from_validation is not None and "test" not in found:
        found["valid"], found["test"] = split_by_image(found["valid"], given.test_from_validation, given.split_seed + 1)
    return {part: Part(found[part], sources, tags) for part in PARTS if part in found}


def embedded(options):
    """Return questions about rendered scenes, 80 % for training, the `Images`, and the words for what is in them."""
    rendered = scenes.scenes(options.num_scenes, SCENES_SEED)
    columns = scenes.question_columns(rendered, QUESTIONS_PER_SCENE)
    images = Images("scenes", [str(row) for row in range(len(rendered))], pixels=scenes.images_of(rendered))
    found = Questions(
        [str(row) for row in range(len(columns["row"]))],
        [str(row) for row in columns["row"]],
        columns["text"],
        columns["votes"],
        columns["answer_type"],
        [int(cell) for cell in columns["cell"]],
    )
    rest, test = split_by_image(found, 0.1, options.split_seed + 2)
    train, valid = split_by_image(rest, 1 / 9, options.split_seed)
    tags = {str(row): [f"{each.color}-{each.shape}" for each in scene.objects] for row, scene in enumerate(rendered)}
    return {"train": train, "valid": valid, "test": test}, images, tags


def region_options(options):
    """Return the `RegionOptions` of a run: of rendered scenes the regions are their cells."""
    regions = options.regions
    if options.questions.train_questions is not None:
        return regions
    own = {"grid": regions.grid or scenes.GRID, "image_size": regions.image_size or scenes.GRID * 16}
    return dataclasses.replace(regions, **own)


def sources_of(options):
    """Return the `Sources` of a run."""
    embeds = options.questions.train_questions is None
    return open_sources(options.regions, embedded(options.questions)[1] if embeds else None)


def with_images(questions, sources, options):
    """Return the questions whose images are there; `InputError` for others, unless they are to be left out."""
    kept = sources.require(questions.images, options.regions.skip_missing)
    require_some(kept, "questions' images")
    skipped = questions.skipped + int(np.sum(~kept))
    return dataclasses.replace(questions.rows(np.flatnonzero(kept)), skipped=skipped)


def codec_of(options, part):
    """Return the codec of the training part; a network that learns words is trained on its answers."""
    given, questions = options.questions, part.questions
    tokens = Tokenizer().token_lists(questions.texts)
    vocabulary = Vocabulary.fit(tokens, len(SPECIAL_TOKENS) + 10**6, given.min_word_count)
    answers = answer_vocabulary(questions.answers, given.min_answer_count, given.max_answers)
    return Codec(
        vocabulary, RegionCodec.fit(region_options(options), part.sources, questions.images, part.words), answers
    )


def other_images(rows, seed):
    """Return for the row of an image that of another one: the next in a random order."""
    images, numbers = np.unique(rows, return_inverse=True)
    if len(images) < 2:
        raise InputError("--control: shuffled_images needs questions about two images at least.")
    order = np.random.default_rng(seed).permutation(len(images))
    next_one = np.empty_like(order)
    next_one[order] = np.roll(order, 1)
    return images[next_one[numbers]]


def words_of(questions):
    """Return what the answers say about images, a dictionary from their ids to words: not yes or no."""
    found = {}
    for image, answer, kind in zip(questions.images, questions.answers, questions.types, strict=True):
        if kind != "yes/no":
            found.setdefault(image, []).extend(answer.split())
    return found


@dataclasses.dataclass
class EncodedPart:
    """A part as the model sees it.

    Attributes:
        questions: `Questions`, all of them.
        sources: `Sources`.
        codec: `Codec`.
        rows: Rows of the images in the regions, int64 (N,).
        words: Ids of the questions, int32 (N, L).
        votes: `Votes`.
        report: Counts, for the log.
    """

    questions: Questions
    sources: Sources
    codec: Codec
    rows: np.ndarray
    words: np.ndarray
    votes: Votes
    report: dict

    @classmethod
    def of(cls, options, codec, part):
        """Encode a part; a control changes which image a question is about."""
        questions = part.questions
        regions = codec.regions.regions_of(part.sources)
        rows = regions.rows_of(questions.images)
        if options.questions.control == "shuffled_images":
            rows = other_images(rows, options.questions.split_seed)
        arrays, counts = codec.words.encode_numpy(questions.texts, options.questions.max_question_length)
        words = np.zeros((len(arrays), options.questions.max_question_length), np.int32)
        for row, ids in enumerate(arrays):
            words[row, : len(ids)] = ids
        votes = Votes.of(questions.votes, codec.answers)
        report = {
            "questions": len(questions),
            "images": len(set(questions.images)),
            "skipped": questions.skipped,
            "questions_cut": counts.num_truncated,
            "unknown_words": counts.num_unknown,
            "without_a_known_answer": int(np.sum(~votes.usable)),
            "images_with_more_regions": (part.sources.regions or regions).num_cut(codec.regions.max_regions),
        }
        if not np.any(votes.usable):
            raise InputError("No question has an answer that the model knows; see --min-answer-count.")
        return cls(questions, part.sources, codec, rows, words, votes, report)

    def __len__(self):
        return len(self.rows)

    def sample(self, count):
        """Return the rows of at most so many questions, drawn at random, ascending; and the part that these are."""
        rows = np.sort(np.random.default_rng(0).permutation(len(self))[:count])
        votes = dataclasses.replace(self.votes, ids=self.votes.ids[rows], counts=self.votes.counts[rows])
        questions, images, words = self.questions.rows(rows), self.rows[rows], self.words[rows]
        return rows, dataclasses.replace(self, questions=questions, rows=images, words=words, votes=votes)

    def num_batches(self, batch_size):
        """Return how many batches an epoch of training has: of the questions with a known answer."""
        return -(-int(self.votes.usable.sum()) // batch_size)

    def batches(self, options, first_epoch=None, answered=True):
        """Return batches of (inputs, targets), as `Application.batches` has them; without answers all questions in
        their order, (inputs,)."""
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
            answers, given = tf.gather(ids, rows), tf.gather(counts, rows)
            if scores:
                each = tf.minimum(given / 3.0, 1.0)[..., None] * tf.one_hot(answers, self.votes.num_answers)
                inputs["answer"] = tf.reduce_sum(each, axis=1)
                return inputs, inputs["answer"]
            # The answer of one of the people.
            shares = tf.cumsum(given, axis=1) / tf.reduce_sum(given, axis=1, keepdims=True)
            last = tf.argmax(tf.where(given > 0, tf.range(given.shape[1]), -1), axis=1, output_type=tf.int32)
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
        return self.codec.regions.with_regions(dataset.map(of_rows), self.sources, blind)
