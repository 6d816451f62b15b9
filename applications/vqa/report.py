"""Reports of a trained model: likelihood, the VQA metric, uncertainty, where the attention looks, cards to look at.

Shapes: N questions, V answers, R regions, M draws.
"""

import collections

import numpy as np
import scipy.special
import tensorflow as tf

import keras_vattn
from applications.common import uncertainty as uncertainty_of
from applications.common.methods import Uncertainty
from applications.common.option_values import first_value
from applications.common.predictor import Predictor
from applications.common.progress import progress
from applications.common.runs import write_json
from applications.common.shown import Shown, random_rows, verdict
from applications.vision import scenes
from applications.vision.codec import boxes_of
from applications.vqa import tables
from applications.vqa.answers import is_right, vqa_accuracy, vqa_accuracy_of_others
from applications.vqa.data import read, read_other
from applications.vqa.options import EvaluateVqa
from applications.vqa.questions import TYPES
from applications.vqa.tables import COLUMNS as COLUMNS
from keras_vattn import metrics

CURVES = {"val_nll": "NLL, validation (nats)", "val_accuracy": "VQA accuracy, validation"}
NUM_SAMPLES = 20
NUM_CARDS = 6
# Most questions of the uncertainty metrics; of more, that many are drawn at random.
MAX_UNCERTAIN = 2000
# The figures behind the cards of a run.
CARDS = "cards.json"
# Questions whose attention weights are drawn for their standard deviation.
NUM_STATISTICS = 32
# p below which PAvPU takes a prediction for certain.
SIGNIFICANCE = 0.05
# Seeds of draws and noise: reports of equal runs are equal.
_SEED = 0


def evaluate(run, part, evaluation=None):
    """Return the figures of a part, and the predictions."""
    asked = evaluation, run.options.reports
    num_draws, feature_noise = (first_value(name, *asked) for name in ("num_draws", "feature_noise"))
    report, outputs = predicted(run, part)
    report |= {"gradients": gradient_norms(run, part), "weights_sd": weights_deviation(run, part)}
    report["uncertainty"], outputs["p_values"], scores = uncertainty(run, part, num_draws)
    if feature_noise:
        noisy, _ = predicted(run, part, feature_noise)
        noisy["uncertainty"], _, noisy_scores = uncertainty(run, part, num_draws, feature_noise)
        detection = {name: metrics.out_of_distribution_detection(x, noisy_scores[name]) for name, x in scores.items()}
        report["noisy"] = noisy | {"variance": feature_noise, "detection": detection}
    return report, outputs | {"part": part}


def seen(run, part, feature_noise=0.0):
    """Return the questions of a part in their order, batches (inputs,), perhaps with noise on the regions."""
    batches = part.batches(run.options, answered=False)
    if not feature_noise:
        return batches
    scale = np.sqrt(feature_noise) * (run.codec.regions.scale if run.options.reports.noise_scale else 1.0)
    width = run.codec.regions.width

    def noisy(number, batch):
        (inputs,) = batch
        regions, seed = inputs["regions"], tf.stack([_SEED, tf.cast(number, tf.int32)])
        noise = scale * tf.random.stateless_normal(tf.shape(regions[..., :width]), seed)
        # Boxes and padding have no noise.
        noise = tf.pad(noise, [[0, 0], [0, 0], [0, regions.shape[-1] - width]])
        there = tf.sequence_mask(inputs["num_regions"], tf.shape(regions)[1])[..., None]
        return (inputs | {"regions": tf.where(there, regions + noise, regions)},)

    return batches.enumerate().map(noisy)


def predicted(run, part, feature_noise=0.0, title="answering"):
    """Return the figures of the exact predictions, and the predictions: of each question the answer, its probability,
    and the weights of the regions."""
    batches = seen(run, part, feature_noise)
    nats, best, probabilities, weights, start = [], [], [], [], 0
    for number, (inputs,) in enumerate(batches if title is None else progress(batches, title)):
        prediction = run.models.predict(inputs, number)
        log_p, of_regions = prediction["log_probabilities"].numpy(), prediction["weights"].numpy()
        votes = part.votes.of_answers(slice(start, start + len(log_p)))
        start += len(votes)
        with np.errstate(invalid="ignore"):
            nats.append(-np.sum(votes * log_p, axis=1) / votes.sum(axis=1))
        best.append(log_p.argmax(axis=1))
        probabilities.append(np.exp(log_p.max(axis=1)))
        weights.append(of_regions)
    nats, best, probabilities, weights = (np.concatenate(x) for x in (nats, best, probabilities, weights))
    answers = [part.codec.answers[index] for index in best]
    rows = list(zip(answers, part.questions.votes, strict=True))
    report = {
        "num_questions": len(part),
        "num_right": sum(is_right(*row) for row in rows),
        "types": dict(collections.Counter(part.questions.types)),
        "nll": float(nats[part.votes.usable].mean()),
        "num_nll": int(part.votes.usable.sum()),
        "accuracy": by_type(part, [vqa_accuracy(*row) for row in rows]),
        "accuracy_of_others": by_type(part, [vqa_accuracy_of_others(*row) for row in rows]),
        "entropy": float(scipy.special.entr(weights).sum(axis=1).mean()),
    }
    if part.questions.cells is not None and scenes.are_cells(part.codec.regions):
        cells = np.array(part.questions.cells)
        if (cells >= 0).any():
            report["pointing"] = float(np.mean((weights.argmax(axis=1) == cells)[cells >= 0]))
            report["pointing_chance"] = 1.0 / weights.shape[1]
    return report, {"answers": answers, "probabilities": probabilities, "weights": weights}


def by_type(part, values):
    """Return the means over all questions, and over the questions of each answer type."""
    values, types = np.array(values), np.array(part.questions.types)
    means = {"all": float(values.mean())}
    return means | {name: float(values[types == name].mean()) for name in TYPES if np.any(types == name)}


def uncertainty(run, part, num_draws, feature_noise=0.0):
    """Return the uncertainty metrics under draws of dropout, of the attention, and of both, as far as the model has
    them, on a sample of the questions. Also return, for the last kind of draws, p-values of the test of the two best
    answers, a dictionary from the rows of the sample, and scores, nats (N,).

    The mean of the draws predicts. Only figures of equal numbers of draws compare.
    """
    report, p_values, scores = {}, {}, {}
    if num_draws < 2:
        return report, p_values, scores
    sampled, part = part.sample(MAX_UNCERTAIN)
    votes, usable = part.votes.of_answers(slice(None)), part.votes.usable
    accuracies, labels = np.minimum(votes / 3.0, 1.0), votes.argmax(axis=1)
    types = np.array(part.questions.types)
    predicting = predictor(run, part, feature_noise)
    for name in predicting.kinds:
        draws = predicting.draws(num_draws, name)
        tested = metrics.pavpu(draws, accuracies=accuracies, significance=SIGNIFICANCE)
        p_values = dict(zip(sampled, tested.p_values.tolist(), strict=True))
        scores = {
            "predictive_entropy": metrics.predictive_entropy(draws),
            "mutual_information": metrics.mutual_information(draws),
        }
        pavpu = {"all": tested.pavpu}
        for kind in TYPES:
            of_kind = types == kind
            if of_kind.any():
                some = metrics.pavpu(draws[:, of_kind], accuracies=accuracies[of_kind], significance=SIGNIFICANCE)
                pavpu[kind] = some.pavpu
        report[name] = {
            "num_draws": num_draws,
            "significance": SIGNIFICANCE,
            "num_questions": len(part),
            "pavpu": pavpu,
            "certain": float(tested.certain.mean()),
            **uncertainty_of.means(draws),
            **uncertainty_of.calibration(draws[:, usable], labels[usable]),
        }
    return report, p_values, scores


def predictor(run, part, feature_noise=0.0):
    """Return the `Predictor` of a part, with noise of this variance on the regions."""
    votes = part.votes.of_answers(slice(None))
    return Predictor(
        np.where(part.votes.usable, votes.argmax(axis=1), -1),
        seen(run, part, feature_noise),
        run.models.prediction,
        lambda outputs: np.exp(outputs["log_probabilities"]),
        drawn=run.models.drawn,
        drops=run.options.dropout > 0,
    )


def sampled_predictor(run, part, feature_noise):
    """Return the same of at most `MAX_UNCERTAIN` of the questions."""
    return predictor(run, part.sample(MAX_UNCERTAIN)[1], feature_noise)


def other_questions(options, path, codec=None):
    """Return the questions of a file."""
    return read_other(options, EvaluateVqa(run="", questions=path))


def gradient_norms(run, part):
    """Return the norms of the gradients of the log-likelihood and of the KL, of one batch as in training."""
    inputs, _ = next(iter(part.batches(run.options, first_epoch=0)))
    # Terms that a gradient of draws needs are there in training alone.
    return uncertainty_of.gradient_norms(run.models.training, inputs, drops=run.options.dropout > 0)


def weights_deviation(run, part):
    """Return the standard deviation of an attention weight over draws, averaged over the weights that are not masked;
    `None` of weights that are not drawn."""
    if run.models.weights is None or run.models.drawn is None:
        return None
    _, part = part.sample(NUM_STATISTICS)
    draws = keras_vattn.posterior_predictive(run.models.weights, seen(run, part), 16, seed=_SEED)
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
    kinds = report["uncertainty"]
    of = "dropout and attention" if "both" in kinds else " and ".join(kinds)
    drawn = f"{figures['num_draws']} draws of {of} on {figures['num_questions']} questions"
    return f"{text}; uncertainty: {drawn}, certain at p < {figures['significance']:g}"


def example_of(part):
    return f"{part.questions.images[0]}\t{part.questions.texts[0]}"


def summary(report):
    accuracy, count = report["accuracy"], report["num_questions"]
    shares = [f"{100 * accuracy[x]:.1f}% of {report['types'][x]:,} {x}" for x in TYPES if x in report["types"]]
    lines = [f"{report['num_right']:,} of {count:,} answers are right. Accuracy: {', '.join(shares)} questions."]
    if "pointing" in report:
        lines.append(
            f"The attention points at the object in question for {100 * report['pointing']:.1f}% of the questions "
            f"about one object, {100 * report['pointing_chance']:.1f}% by chance."
        )
    if report.get("noisy", {}).get("detection"):
        auroc = {name: figures["auroc"] for name, figures in report["noisy"]["detection"].items()}
        lines.append(
            f"The mutual information of draws tells noisy features from clean ones with an AUROC of "
            f"{auroc['mutual_information']:.3f}, the entropy with {auroc['predictive_entropy']:.3f}."
        )
    return lines


def shown(run, part, outputs):
    samples, questions = [], part.questions
    for row in random_rows(len(part), NUM_SAMPLES):
        answer, votes = outputs["answers"][row], questions.votes[row]
        fault = "" if is_right(answer, votes) else f"{votes.count(answer)} of {len(votes)} people say so"
        answered = f"{answer} {outputs['probabilities'][row]:.2f}"
        people = ("people", people_of(votes))
        samples.append([("question", questions.texts[row]), people, ("answer", answered), verdict(fault)])
    return Shown(samples, drawn=_cards(run, part, outputs))


def report(run, part, record, outputs, shown):
    splits = {name: encoded.questions.ids for name, encoded in run.data.items()}
    if run.options.questions.test_from_validation is not None:
        write_json(run.folder.file("split.json"), splits)
    cards = shown.drawn
    write_json(run.folder.file(CARDS), {"model": run.options.model, "cards": cards})
    draw_cards({run.options.model: cards}, part, run.folder.file("cards.png"))
    return [*("; ".join(f"{label}: {text}" for label, text in sample) for sample in shown.samples), ""]


def _cards(run, part, outputs):
    """Return the figures behind the cards of some questions: Figure 2 of Fan et al. 2020."""
    p_values, cards, chosen = outputs["p_values"], [], _chosen(run, part)
    boxes = boxes_of(run.codec.regions, part.sources, part.rows[chosen])
    images = run.codec.regions.regions_of(part.sources).ids
    for index, box in zip(chosen, boxes, strict=True):
        cards.append(
            {
                "id": part.questions.ids[index],
                "image": images[part.rows[index]],
                "question": part.questions.texts[index],
                "people": people_of(part.questions.votes[index]),
                "answer": outputs["answers"][index],
                "probability": float(outputs["probabilities"][index]),
                "p": p_values.get(index),
                "weights": outputs["weights"][index][: len(box)].tolist(),
                "boxes": box.tolist(),
            }
        )
    return cards


def _chosen(run, part):
    """Return the rows of the questions of the cards: the same, whether a model has p-values or not."""
    sampled, _ = part.sample(MAX_UNCERTAIN)
    return sampled[random_rows(len(sampled), NUM_CARDS)]


def compared(comparison):
    cards = {run.name: comparison.read(run, CARDS)["cards"] for run in comparison.of_first_seed}
    parts = read(comparison.planned[0].options)
    draw_cards(cards, parts.get("test", parts["valid"]), comparison.folder / "cards.png")
    return []


def people_of(votes):
    """Return the three most frequent answers of people with their numbers."""
    return ", ".join(f"{answer} {count}" for answer, count in collections.Counter(votes).most_common(3))


def said(card):
    p = "" if card["p"] is None else f", p = {card['p']:.3f}"
    return f"{card['answer']} {card['probability']:.2f}{p}"


def draw_cards(of_models, part, path):
    """Draw where models looked, with their answers, into a PNG: a row for each question, a panel for each model.

    The cards are a dictionary from the names of models; the questions that all models have are drawn.
    """
    # A card without boxes cannot be drawn.
    by_id = {name: {card["id"]: card for card in cards if np.any(card["boxes"])} for name, cards in of_models.items()}
    ids = [each for each in next(iter(by_id.values())) if all(each in cards for cards in by_id.values())]
    source = part.sources.images
    if source is None or not ids:
        return
    panels = []
    for name, card in ((name, cards[each]) for each in ids for name, cards in by_id.items()):
        title = f"{card['question']}\npeople: {card['people']}\n{name}: {said(card)}"
        panels.append((source.read(source.rows_of([card["image"]])[0]), card["weights"], card["boxes"], title))
    panels_per_row = len(of_models) if len(of_models) > 1 else 3
    keras_vattn.plots.image_attention(*map(list, zip(*panels)), panels_per_row=panels_per_row, path=path)


LAYOUTS = {
    "deng": tables.deng,
    "fan": tables.fan,
    "uncertainty": Uncertainty(sampled_predictor, other_questions, corruption=5.0),
}
