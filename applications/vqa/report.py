"""Report the likelihood, the VQA metric, the uncertainty and the attention of a trained model.

Shapes: N questions, V answers, R regions, M samples.
"""

import collections

import numpy as np
import scipy.special
import tensorflow as tf

import keras_vattn
from applications.common.methods import Uncertainty
from applications.common.option_values import first_value
from applications.common.predictor import Predictor
from applications.common.progress import progress
from applications.common.runs import write_json
from applications.common.shown import Shown, random_rows, sample_lines, verdict
from applications.common.uncertainty import calibration, means
from applications.vision import scenes
from applications.vision.codec import picture_of
from applications.vqa import tables
from applications.vqa.answers import vqa_accuracy
from applications.vqa.data import read_other
from applications.vqa.options import EvaluateVqa
from applications.vqa.questions import TYPES
from applications.vqa.tables import COLUMNS as COLUMNS
from keras_vattn import metrics

CURVES = {"val_nll": "NLL, validation (nats)", "val_accuracy": "VQA accuracy, validation"}
NUM_SAMPLES = 20
NUM_CARDS = 6
MAX_UNCERTAIN = 2000
NUM_STATISTICS = 32  # Questions for the standard deviation of attention weights.
# PAvPU counts a prediction as certain if its p-value is lower than this.
SIGNIFICANCE = 0.05
_SEED = 0


def evaluate(run, part, evaluation=None):
    """Return the report on a data split, and the predictions."""
    options = evaluation, run.options.reports
    num_draws, feature_noise = (first_value(name, *options) for name in ("num_draws", "feature_noise"))
    report, outputs = predicted(run, part)
    report["weights_sd"] = weights_deviation(run, part)
    samplers = {}  # traced once and used for clean and for noisy features
    report["uncertainty"], p_values = uncertainty(run, part, num_draws, samplers=samplers)
    if feature_noise:
        report["noisy"], _ = predicted(run, part, feature_noise)
        report["noisy"]["uncertainty"], _ = uncertainty(run, part, num_draws, feature_noise, samplers)
    return report, outputs | {"part": part, "p_values": p_values}


def questions_with_noise(run, part, feature_noise=0.0):
    """Return the batches (inputs,) of all questions, in order.

    `feature_noise` is the variance of the noise that is added to the features.
    """
    batches = part.questions_in_order(run.options)
    if not feature_noise:
        return batches
    scale = np.sqrt(feature_noise) * (run.codec.regions.scale if run.options.reports.noise_scale else 1.0)
    width = run.codec.regions.width

    def noisy(number, batch):
        (inputs,) = batch
        regions, seed = inputs["regions"], tf.stack([_SEED, tf.cast(number, tf.int32)])
        noise = scale * tf.random.stateless_normal(tf.shape(regions[..., :width]), seed)
        # Padding and the box coordinates in the last columns get no noise.
        noise = tf.pad(noise, [[0, 0], [0, 0], [0, regions.shape[-1] - width]])
        is_region = tf.sequence_mask(inputs["num_regions"], tf.shape(regions)[1])[..., None]
        return (inputs | {"regions": tf.where(is_region, regions + noise, regions)},)

    return batches.enumerate().map(noisy)


def predicted(run, part, feature_noise=0.0, title="answering"):
    """Return the metrics of `Models.predict`, and a dictionary of predictions.

    The dictionary contains the best answer, its probability and the region weights for each question.
    """
    batches, codec = questions_with_noise(run, part, feature_noise), part.codec
    columns, start = [], 0
    for number, (inputs,) in enumerate(batches if title is None else progress(batches, title)):
        prediction = run.models.predict(inputs, number)
        log_p = prediction["log_probabilities"].numpy()
        votes = part.votes[start : start + len(log_p)].toarray()
        start += len(log_p)
        with np.errstate(invalid="ignore"):
            nats = -np.sum(votes * log_p, axis=1) / votes.sum(axis=1)
        columns.append((nats, log_p.argmax(axis=1), np.exp(log_p.max(axis=1)), prediction["weights"].numpy()))
    nats, best, probabilities, weights = map(np.concatenate, zip(*columns, strict=True))
    answers = [codec.answers[index] for index in best]
    accuracies = np.array([vqa_accuracy(*row) for row in zip(answers, part.questions.votes, strict=True)])
    report = {
        "num_questions": len(part),
        "num_right": int(np.sum(accuracies == 1.0)),
        "types": dict(collections.Counter(part.questions.types)),
        "nll": float(nats[part.usable].mean()),
        "num_nll": int(part.usable.sum()),
        "accuracy": {name: float(accuracies[rows].mean()) for name, rows in rows_by_type(part).items()},
        "entropy": float(scipy.special.entr(weights).sum(axis=1).mean()),
    }
    if part.questions.cells is not None and scenes.are_cells(codec.regions):
        cells = np.array(part.questions.cells)
        if (cells >= 0).any():
            report["pointing"] = float(np.mean((weights.argmax(axis=1) == cells)[cells >= 0]))
            report["pointing_chance"] = 1.0 / weights.shape[1]
    return report, {"answers": answers, "probabilities": probabilities, "weights": weights}


def rows_by_type(part):
    """Return boolean masks (N,) in a dictionary: "all" questions, and one mask per question type."""
    types = np.array(part.questions.types)
    rows = {"all": np.ones(len(types), bool)} | {name: types == name for name in TYPES}
    return {name: selected for name, selected in rows.items() if selected.any()}


def uncertainty(run, part, num_draws, feature_noise=0.0, samplers=None):
    """Return uncertainty metrics for up to `MAX_UNCERTAIN` questions, and a dictionary with a p-value per question.

    A prediction is the mean over `num_draws` samples. Compare only metrics with the same `num_draws`. The metrics are
    computed for each kind of noise in `Predictor.kinds`. The p-values are computed for the last kind, by a t-test
    between the two most probable answers. `samplers` is a dictionary of traced samplers, as in `Predictor`.
    """
    report, p_values = {}, {}
    if num_draws < 2:
        return report, p_values
    sampled, part = part.sample(MAX_UNCERTAIN)
    votes, usable = part.votes.toarray(), part.usable
    accuracies, labels = np.minimum(votes / 3.0, 1.0), votes.argmax(axis=1)
    predicting = predictor(run, part, feature_noise)
    predicting.samplers = {} if samplers is None else samplers
    for kind in predicting.kinds:
        draws = predicting.draws(num_draws, kind)
        tested = {
            name: metrics.pavpu(draws[:, rows], accuracies=accuracies[rows], significance=SIGNIFICANCE)
            for name, rows in rows_by_type(part).items()
        }
        p_values = dict(zip(sampled, tested["all"].p_values.tolist(), strict=True))
        report[kind] = {
            "num_draws": num_draws,
            "significance": SIGNIFICANCE,
            "num_questions": len(part),
            "pavpu": {name: test.pavpu for name, test in tested.items()},
            "certain": float(tested["all"].certain.mean()),
            **means(draws),
            **calibration(draws[:, usable], labels[usable]),
        }
    return report, p_values


def predictor(run, part, feature_noise=0.0):
    """Return a `Predictor` for up to `MAX_UNCERTAIN` random questions.

    `feature_noise` is the variance of the noise that is added to the features.
    """
    _, part = part.sample(MAX_UNCERTAIN)
    return Predictor(
        np.where(part.usable, part.votes.toarray().argmax(axis=1), -1),
        questions_with_noise(run, part, feature_noise),
        run.models.prediction,
        lambda outputs: np.exp(outputs["log_probabilities"]),
        drawn=run.models.drawn,
        drops=run.options.dropout > 0,
    )


def other_questions(options, path, codec=None):
    return read_other(options, EvaluateVqa(run="", questions=path))


def weights_deviation(run, part):
    """Return the mean standard deviation of sampled weights. For updown models and deterministic weights, return
    `None`."""
    if run.models.weights is None or run.models.drawn is None:
        return None
    _, part = part.sample(NUM_STATISTICS)
    draws = keras_vattn.posterior_predictive(run.models.weights, questions_with_noise(run, part), 16, seed=_SEED)
    return float(np.concatenate([weights.std(axis=0)[weights.mean(axis=0) > 0] for weights in draws]).mean())


def files(outputs):
    questions = outputs["part"].questions
    columns = (questions.ids, questions.texts, outputs["answers"], questions.answers)
    return {"answers": ["\t".join(row) for row in zip(*columns, strict=True)]}


def heading(record):
    report, figures = record["report"], tables.last_kind(record)
    text = f"{report['num_questions']} {record['split']} questions, NLL of the {report['num_nll']} with a known answer"
    if not figures:
        return text
    drawn = f"{figures['num_draws']} draws on {figures['num_questions']} questions"
    return f"{text}; uncertainty: {drawn}, certain at p < {figures['significance']:g}"


def example_of(part):
    return f"{part.questions.images[0]}\t{part.questions.texts[0]}"


def summary(report):
    accuracy, count = report["accuracy"], report["num_questions"]
    accuracies = [f"{100 * accuracy[x]:.1f}% of {report['types'][x]:,} {x}" for x in TYPES if x in report["types"]]
    lines = [f"{report['num_right']:,} of {count:,} answers are right. Accuracy: {', '.join(accuracies)} questions."]
    if "pointing" in report:
        lines.append(
            f"For {100 * report['pointing']:.1f}% of the questions about one object, the attention points at "
            f"this object (by chance: {100 * report['pointing_chance']:.1f}%)."
        )
    return lines


def shown(run, part, outputs):
    samples, questions = [], part.questions
    for row in random_rows(len(part), NUM_SAMPLES):
        answer, votes = outputs["answers"][row], questions.votes[row]
        fault = "" if vqa_accuracy(answer, votes) == 1.0 else f"{votes.count(answer)} of {len(votes)} people say so"
        answered = f"{answer} {outputs['probabilities'][row]:.2f}"
        people = ("people", people_of(votes))
        samples.append([("question", questions.texts[row]), people, ("answer", answered), verdict(fault)])
    return Shown(samples)


def report(run, part, record, outputs, shown):
    if run.options.questions.test_from_validation is not None:
        splits = {name: encoded.questions.ids for name, encoded in run.data.items()}
        write_json(run.folder.file("split.json"), splits)
    draw_cards(run, part, outputs)
    return sample_lines(shown.samples, NUM_SAMPLES)


def people_of(votes):
    """Return the three most frequent answers in `votes`, with the number of votes for each."""
    return ", ".join(f"{answer} {count}" for answer, count in collections.Counter(votes).most_common(3))


def draw_cards(run, part, outputs):
    """Write cards.png: random questions, the attention, and the p-value of the answer. The picture follows Figure 2 of
    Fan et al. 2020."""
    panels, sampled = [], random_rows(len(part), MAX_UNCERTAIN)
    for row in sampled[random_rows(len(sampled), NUM_CARDS)]:
        picture = picture_of(run.codec.regions, part.sources, part.rows[row])
        if picture is not None:
            image, boxes = picture
            p = f", p = {outputs['p_values'][row]:.3f}" if row in outputs["p_values"] else ""
            answer = f"{outputs['answers'][row]} {outputs['probabilities'][row]:.2f}{p}"
            people = people_of(part.questions.votes[row])
            title = f"{part.questions.texts[row]}\npeople: {people}\n{run.options.model}: {answer}"
            panels.append((image, outputs["weights"][row][: len(boxes)], boxes, title))
    if panels:
        columns = map(list, zip(*panels, strict=True))
        keras_vattn.plots.image_attention(*columns, panels_per_row=3, path=run.folder.file("cards.png"))


LAYOUTS = {
    "deng": tables.deng,
    "fan": tables.fan,
    "uncertainty": Uncertainty(predictor, other_questions, corruption=5.0),
}
