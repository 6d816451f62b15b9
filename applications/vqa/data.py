"""Read questions and images, split the questions, fit the vocabularies, and build batches."""

import dataclasses

import numpy as np
import scipy.sparse
import tensorflow as tf

from applications.common.errors import InputError
from applications.common.shown import random_rows
from applications.text.options import PARTS
from applications.text.text import SPECIAL_TOKENS, Tokenizer, Vocabulary
from applications.vision import scenes
from applications.vision.codec import RegionCodec, Sources, open_sources
from applications.vision.program import Codec
from applications.vision.program import load_codec as load_codec  # imported by the commands from here
from applications.vqa.answers import answer_vocabulary, count_votes
from applications.vqa.questions import Questions, read_questions, split_by_image

QUESTIONS_PER_SCENE = 6
# One region suffices to answer these types of questions. The latent alignment of updown selects only one region.
BUILT_IN_TYPES = ("color", "shape", "attribute", "number", "opinion")


@dataclasses.dataclass
class Part:
    """Questions and their images. `tags` maps an image id to words for the objects in the image, if known."""

    questions: Questions
    sources: Sources
    tags: dict | None = None


def read(options):
    """Return the `Part` of each split. Without question files, render scenes and split the scenes 80/10/10."""
    files, fraction, tags = options.questions, options.questions.valid_fraction, None
    if files.train_questions is None:
        questions, tags = embedded(scenes.scenes(files.num_scenes))
        train, test = split_by_image(questions, 0.1, 2)
        parts, fraction = {"train": train, "test": test}, 1 / 9
    else:
        paths = {part: (getattr(files, f"{part}_questions"), getattr(files, f"{part}_annotations")) for part in PARTS}
        parts = {part: read_questions(*pair) for part, pair in paths.items() if pair[0] is not None}
    sources = sources_of(options).subset([image for questions in parts.values() for image in questions.images])
    if "valid" not in parts:
        parts["train"], parts["valid"] = split_by_image(parts["train"], fraction, 0)
    if files.test_from_validation is not None and "test" not in parts:
        parts["valid"], parts["test"] = split_by_image(
            parts["valid"], files.test_from_validation, 1, "--test-from-validation"
        )
    return {part: Part(parts[part], sources, tags) for part in PARTS if part in parts}


def read_other(options, evaluation):
    """Return a `Part` with the questions in the files that the options of `evaluate` name.

    If the options name no files, return `None`.
    """
    if evaluation.questions is None:
        return None
    questions = read_questions(evaluation.questions, evaluation.annotations)
    return Part(questions, sources_of(options).subset(questions.images))


def sources_of(options):
    """Return the `Sources` of a run: the images or features that its options name, or built-in scenes."""
    return open_sources(options.regions, options.questions.num_scenes, ("color", "shape"))


def embedded(rendered):
    """Return `Questions` about rendered scenes, and a dictionary that maps image ids to tags (`red-circle`)."""
    columns = scenes.question_columns(rendered, QUESTIONS_PER_SCENE, BUILT_IN_TYPES)
    images = list(map(str, columns["row"]))
    names = ("text", "votes", "answer_type", "cell")
    questions = Questions(list(map(str, range(len(images)))), images, *(columns[name] for name in names))
    tags = {str(row): [f"{item.color}-{item.shape}" for item in scene.objects] for row, scene in enumerate(rendered)}
    return questions, tags


def region_options(options):
    """Return the `RegionOptions` of a run. The regions of rendered scenes are grid cells."""
    regions = options.regions
    if options.questions.train_questions is not None:
        return regions
    grid, image_size = regions.grid or scenes.GRID, regions.image_size or scenes.GRID * 16
    return dataclasses.replace(regions, grid=grid, image_size=image_size)


def codec_of(options, part):
    """Return the codec that is fitted on the training data.

    With --network words, the extractor learns to detect tags or, without tags, the words of the answers.
    """
    limits, questions = options.questions, part.questions
    vocabulary = Vocabulary.fit(Tokenizer().count(questions.texts), len(SPECIAL_TOKENS) + 10**6)
    answers = answer_vocabulary(questions.answers, limits.min_answer_count, limits.max_answers)
    words = words_of(questions) if part.tags is None else {image: part.tags[image] for image in questions.images}
    regions = RegionCodec.fit(region_options(options), part.sources, questions.images, words)
    return Codec(vocabulary, regions, answers)


def words_of(questions):
    """Return a dictionary that maps each image id to the words of the answers about the image. Yes/no answers are left
    out."""
    words = {}
    for image, answer, kind in zip(questions.images, questions.answers, questions.types, strict=True):
        if kind != "yes/no":
            words.setdefault(image, []).extend(answer.split())
    return words


@dataclasses.dataclass(kw_only=True)
class EncodedPart(Part):
    """An encoded `Part` of N questions.

    Attributes:
        rows: For each question, the row of its image in the region features, int64 (N,).
        words: Word ids, int32 (N, L), padded with 0.
        votes: Number of votes for each answer in the vocabulary, sparse (N, V).
        report: Counts for the log.
    """

    codec: Codec
    rows: np.ndarray
    words: np.ndarray
    votes: scipy.sparse.csr_matrix
    report: dict

    def __len__(self):
        return len(self.rows)

    @property
    def usable(self):
        """Boolean mask (N,) of the questions with an answer in the vocabulary."""
        return self.votes.getnnz(axis=1) > 0

    def sample(self, count):
        """Return the sorted indices of up to `count` random questions, and their `EncodedPart`."""
        rows = random_rows(len(self), count)
        columns = {name: getattr(self, name)[rows] for name in ("rows", "words", "votes")}
        return rows, dataclasses.replace(self, questions=self.questions.rows(rows), **columns)

    def num_batches(self, batch_size):
        """Return the number of training batches per epoch, which contain only `usable` questions."""
        return -(-int(self.usable.sum()) // batch_size)

    def questions_in_order(self, options):
        """Return batches (inputs,) of all questions in order, without answers."""
        inputs = {"image": self.rows, "question": self.words}
        dataset = tf.data.Dataset.from_tensor_slices((inputs,)).batch(options.fit.batch_size)
        return self._with_regions(dataset, options)

    def batches(self, options, first_epoch=None):
        """Return batches (inputs, targets) of the `usable` questions.

        If `first_epoch` is `None`, the dataset is one pass in order. Otherwise, it is endless and shuffled, and starts
        with this epoch.
        """
        usable, seed = np.flatnonzero(self.usable), options.run.seed
        votes = self.votes[usable]
        with tf.device("CPU:0"):
            columns = [tf.constant(self.rows[usable]), tf.constant(self.words[usable])]
            columns += [
                tf.RaggedTensor.from_row_splits(values, votes.indptr).to_tensor()
                for values in (votes.indices, votes.data)
            ]

        def shuffled(epoch):
            noise = tf.random.stateless_uniform([len(usable)], tf.stack([seed, 2 * epoch + 1]))
            order = tf.range(len(usable))
            order = tf.random.experimental.stateless_shuffle(order, tf.stack([seed, 2 * epoch]))
            return tf.data.Dataset.from_tensor_slices((order, noise)).batch(options.fit.batch_size)

        def labelled(rows, noise):
            image, question, ids, counts = (tf.gather(column, rows) for column in columns)
            answer = self._scores(ids, counts) if options.questions.labels == "soft" else _drawn(ids, counts, noise)
            return {"image": image, "question": question, "answer": answer}, answer

        if first_epoch is None:
            # The noise is the same in every epoch. Otherwise, validation losses would not be comparable.
            noise = tf.random.stateless_uniform([len(usable)], [seed, -1])
            rows = tf.data.Dataset.from_tensor_slices((tf.range(len(usable)), noise)).batch(options.fit.batch_size)
        else:
            rows = tf.data.Dataset.range(first_epoch, np.iinfo(np.int64).max).flat_map(shuffled)
        return self._with_regions(rows.map(labelled), options)

    def _scores(self, ids, counts):
        """Return the VQA accuracy of each possible answer, (B, V)."""
        accuracies = tf.minimum(counts / 3.0, 1.0)[..., None] * tf.one_hot(ids, self.votes.shape[1])
        return tf.reduce_sum(accuracies, axis=1)

    def _with_regions(self, dataset, options):
        codec, is_blind = self.codec.regions, options.questions.control == "question_only"
        return codec.with_regions(dataset, codec.regions_of(self.sources), is_blind)


def _drawn(ids, counts, noise):
    """Return one sampled answer id per question, (B,), in proportion to the votes."""
    cumulative = tf.cumsum(counts, axis=1) / tf.reduce_sum(counts, axis=1, keepdims=True)
    last = tf.argmax(tf.where(counts > 0, tf.range(counts.shape[1]), -1), axis=1, output_type=tf.int32)
    drawn = tf.reduce_sum(tf.cast(cumulative <= noise[:, None], tf.int32), axis=1)
    return tf.gather(ids, tf.minimum(drawn, last), batch_dims=1)


def encode(options, codec, part, training=False):
    questions, length = part.questions, options.questions.max_question_length
    regions = codec.regions.regions_of(part.sources)
    arrays, counts = codec.words.encode_numpy(questions.texts, length)
    words = np.stack([np.pad(ids, (0, length - len(ids))) for ids in arrays]).astype(np.int32)
    votes = count_votes(questions.votes, codec.answers)
    columns = {"rows": regions.rows_of(questions.images), "words": words, "votes": votes}
    report = {
        "questions": len(questions),
        "images": len(set(questions.images)),
        "questions_cut": counts.num_truncated,
        "unknown_words": counts.num_unknown,
        "without_a_known_answer": int(np.sum(votes.getnnz(axis=1) == 0)),
        "images_with_more_regions": (part.sources.regions or regions).num_cut(codec.regions.max_regions),
    }
    if not votes.nnz:
        raise InputError(
            f"none of {len(questions)} questions has any of the {len(codec.answers)} known answers. Known answers "
            f"occur at least {options.questions.min_answer_count} times in training. Choose other questions. For "
            "validation, pass other --valid-questions, or hold out more questions with a larger --valid-fraction."
        )
    return EncodedPart(**vars(part), codec=codec, report=report, **columns)
