"""Reports of a fine-tuned model: the figures of its task, calibration, uncertainty.

Shapes: N examples, C classes, S draws.
"""

import dataclasses

import numpy as np
import tensorflow as tf

import keras_vattn
from applications.common import uncertainty
from applications.common.errors import InputError
from applications.common.methods import Uncertainty
from applications.common.option_values import first_value
from applications.common.papers import beside
from applications.common.predictor import Predictor
from applications.common.shown import Shown, random_rows, sample_lines, verdict
from applications.common.tables import Column, out_of, title_from
from applications.finetuning import data, embedded, spans
from applications.finetuning.options import MODELS, TASKS
from applications.finetuning.serve import logits_of, predicted_spans
from keras_vattn import metrics

# Examples in report.txt, and in report.html.
NUM_SHOWN, NUM_SAMPLES = 5, 20
_TASK, _DRAWS = "report.task", "report.draws"
COLUMNS = (
    Column("Matthews", f"{_TASK}.matthews"),
    Column("accuracy (%)", f"{_TASK}.accuracy", 1, 100.0),
    Column("Pearson", f"{_TASK}.pearson"),
    Column("Spearman", f"{_TASK}.spearman"),
    Column("RMSE", f"{_TASK}.rmse"),
    Column("exact match (%)", f"{_TASK}.exact", 1, 100.0),
    Column("F1 (%)", f"{_TASK}.f1", 1, 100.0),
    Column("NLL (nats)", "report.nll"),
    Column("ECE", "report.ece"),
    Column("Brier", "report.brier"),
    Column("Matthews, draws", f"{_DRAWS}.task.matthews"),
    Column("accuracy, draws (%)", f"{_DRAWS}.task.accuracy", 1, 100.0),
    Column("Pearson, draws", f"{_DRAWS}.task.pearson"),
    Column("exact match, draws (%)", f"{_DRAWS}.task.exact", 1, 100.0),
    Column("F1, draws (%)", f"{_DRAWS}.task.f1", 1, 100.0),
    Column("NLL, draws", f"{_DRAWS}.nll"),
    Column("ECE, draws", f"{_DRAWS}.ece"),
    Column("PAvPU, draws", f"{_DRAWS}.pavpu"),
    Column("sd of a score", f"{_DRAWS}.sd"),
    Column("gradient of the likelihood", "report.gradients.likelihood", differs=False),
    Column("gradient of the KL", lambda record: f"{record['report']['gradients']['kl']:.1e}", differs=False),
    Column("s/step", "step_seconds", differs=False),
    Column("steps", "steps", 0, differs=False),
)


def evaluate(run, part, evaluation=None):
    """Return all figures of an encoded part, and the predictions."""
    draws = bool(keras_vattn.stochastic_layers(run.models.training))
    num_draws = draws and first_value("num_draws", evaluation, run.options.reports)
    kind = TASKS[run.options.texts.task].kind
    report = {"num_examples": len(part.part), "gradients": gradient_norms(run, part)}
    if kind == "span":
        answers = predicted_spans(run, part)
        report["task"] = spans.figures(answers, part.part)
        if num_draws:
            figures = spans.figures(predicted_spans(run, part, num_draws), part.part)
            report["draws"] = {"num_draws": num_draws, "task": figures}
        return report, {"part": part, "answers": answers}
    outputs, draws = np.concatenate(logits_of(run, part)), None
    if num_draws:
        draws = predictor(run, part).draws(num_draws, "attention")
    figures = score_report if kind == "score" else class_report
    figures, answers, unknown = figures(run, part.targets, outputs, draws)
    if kind == "classes":
        is_embedded = run.options.texts.train is None and (evaluation is None or evaluation.data is None)
        telling = embedded.is_telling(part.part.firsts) if is_embedded else None
        figures["certainty"] = certainty(tf.nn.softmax(outputs).numpy(), part.targets, telling)
    return report | figures, {"part": part, "answers": answers, "unknown": unknown}


def predictor(run, part, corruption=0.0):
    """Return the `Predictor` of an encoded part, in which this share of the words are replaced by other words of it; of
    a score it predicts the scores."""
    model, options = run.models.training, run.options
    if corruption:
        part = data.encode(options, run.codec, with_other_words(part.part, corruption))
    # Texts of like lengths share a batch, as in training; the outputs stand in the order of the part.
    order = np.argsort(part.ids.row_lengths(), kind="stable")
    places = np.argsort(order)

    def probabilities(outputs):
        outputs = np.take(outputs, places, axis=outputs.ndim - (1 if run.codec.labels is None else 2))
        return outputs if run.codec.labels is None else tf.nn.softmax(outputs).numpy()

    return Predictor(
        part.targets,
        part.rows(order).batches(options),
        model,
        probabilities,
        drawn=model if keras_vattn.stochastic_layers(model) else None,
        drops=options.backbone.drops,
        max_rows=8 * options.fit.batch_size,
    )


def with_other_words(texts, share):
    """Return `Texts` with a share of the words replaced by words drawn from all of them."""
    generator = np.random.default_rng(0)
    words = np.array([word for column in texts.columns for text in column for word in text.split()])

    def corrupted(text):
        kept = np.array(text.split())
        return " ".join(np.where(generator.random(len(kept)) < share, generator.choice(words, len(kept)), kept))

    columns = [list(map(corrupted, column)) for column in texts.columns]
    return data.Texts(columns[0], columns[1] if len(columns) > 1 else None, texts.labels)


def other_texts(options, path, codec=None):
    """Return the texts of a file, all of one label."""
    texts = data.read_examples(path, options.texts)
    return dataclasses.replace(texts, labels=[codec and codec.labels[0]] * len(texts))


def require_classes(options):
    if TASKS[options.texts.task].kind != "classes":
        raise InputError(f"A table of the uncertainty is of classes. Received: --task {options.texts.task}")


def class_report(run, labels, logits, draws):
    """Return the figures of classes, the predicted names, and the mutual information of the draws or `None`."""
    probabilities = tf.nn.softmax(logits).numpy()
    best, unknown = probabilities.argmax(axis=1), None
    report = {"task": class_figures(labels, best), **uncertainty.calibration(probabilities[None], labels)}
    if draws is not None:
        unknown = metrics.mutual_information(draws)
        report["draws"] = {
            "num_draws": len(draws),
            "task": class_figures(labels, draws.mean(axis=0).argmax(axis=1)),
            "pavpu": metrics.pavpu(draws, labels).pavpu,
            **uncertainty.means(draws),
            **uncertainty.calibration(draws, labels),
        }
    return report, [run.codec.labels[each] for each in best], unknown


def class_figures(labels, predicted):
    """Return the figures that GLUE reports of classes; F1 is of the second class."""
    import sklearn.metrics

    figures = {"accuracy": float(np.mean(labels == predicted))}
    # A single class has no correlation, and scikit-learn warns.
    several = len(np.union1d(labels, predicted)) > 1
    figures["matthews"] = float(sklearn.metrics.matthews_corrcoef(labels, predicted)) if several else 0.0
    if max(labels.max(), predicted.max()) < 2:
        figures["f1"] = float(sklearn.metrics.f1_score(labels, predicted, zero_division=0.0))
    return figures


def certainty(probabilities, labels, telling=None):
    """Return the number of predictions, the share of right ones and the mean entropy in nats, of groups of them: right
    and wrong ones, the most certain nine of ten, and texts with and without a telling word (N,)."""
    right, entropies = probabilities.argmax(axis=1) == labels, metrics.predictive_entropy(probabilities[None])
    ranks = np.argsort(np.argsort(entropies, kind="stable"))
    groups = {"right": right, "wrong": ~right, "most certain 90%": ranks < 0.9 * len(ranks)}
    groups |= {} if telling is None else {"with a telling word": telling, "ambiguous": ~telling}
    return {
        name: {
            "count": int(rows.sum()),
            "accuracy": float(right[rows].mean()),
            "entropy": float(entropies[rows].mean()),
        }
        for name, rows in groups.items()
        if rows.any()
    }


def score_report(run, targets, scores, draws):
    """Return the figures of scores, the scores as texts, and the standard deviation of the draws or `None`."""
    report, deviation = {"task": score_figures(targets, scores)}, None
    if draws is not None:
        mean, deviation = draws.mean(axis=0), draws.std(axis=0)
        report["draws"] = {
            "num_draws": len(draws),
            "task": score_figures(targets, mean),
            "sd": float(deviation.mean()),
            # Does the model know where it is far off?
            "error_correlation": score_figures(np.abs(targets - mean), deviation)["spearman"],
        }
    return report, [f"{score:.3f}" for score in scores], deviation


def score_figures(targets, scores):
    """Return the correlations with the scores that people gave; 0 for scores that are all the same."""
    import scipy.stats

    figures = {"pearson": 0.0, "spearman": 0.0, "rmse": float(np.sqrt(np.mean((targets - scores) ** 2)))}
    if np.ptp(scores) and np.ptp(targets):
        figures["pearson"] = float(scipy.stats.pearsonr(targets, scores).statistic)
        figures["spearman"] = float(scipy.stats.spearmanr(targets, scores).statistic)
    return figures


def gradient_norms(run, part):
    """Return the norms of the gradients of the log-likelihood and of the KL, of one batch as in training."""
    inputs, targets = next(iter(part.batches(run.options)))
    kind = TASKS[run.options.texts.task].kind
    log_likelihood = {
        "score": lambda outputs: -tf.square(outputs - targets),
        "span": lambda outputs: -sum(spans.span_losses(targets, outputs)),
        "classes": lambda outputs: -tf.nn.sparse_softmax_cross_entropy_with_logits(targets, outputs),
    }[kind]
    return uncertainty.gradient_norms(run.models.training, inputs, log_likelihood, run.options.backbone.drops)


def files(outputs):
    part, answers = outputs["part"].part, outputs["answers"]
    if isinstance(part, spans.Questions):
        rows = zip(part.ids, part.questions, answers, strict=True)
        return {"answers": ["\t".join(" ".join(cell.split()) for cell in row) for row in rows]}
    rows = zip(*part.columns, map(str, part.labels), answers, strict=True)
    return {"answers": list(map("\t".join, rows))}


def heading(record):
    report = record["report"]
    examples = f"{report['num_examples']} {record['split']} examples"
    draws = report.get("draws")
    return examples if draws is None else f"{examples}; {draws['num_draws']} draws of the attention"


def example_of(part):
    texts = part.part
    if isinstance(texts, spans.Questions):
        return f"{texts.questions[0]}\t{' '.join(texts.contexts[0].split())}"
    return "\t".join(column[0] for column in texts.columns)


def summary(report):
    task, count, draws = report["task"], report["num_examples"], report.get("draws")
    if "pearson" in task:
        lines = [f"The scores of {count:,} examples correlate with the right ones, Pearson {task['pearson']:.3f}."]
    elif "exact" in task:
        lines = [f"{out_of(task['exact'], count)} answers are right; F1 {100 * task['f1']:.1f}%."]
    else:
        lines = [f"{out_of(task['accuracy'], count)} examples are right."]
        if draws:
            right = out_of(draws["task"]["accuracy"], count)
            nats = f"NLL {draws['nll']:.3f} nats (without: {report['nll']:.3f})"
            lines.append(f"With {draws['num_draws']} draws: {right} right, {nats}.")
    return lines


def shown(run, part, outputs):
    part, answers, unknown = part.part, outputs["answers"], outputs.get("unknown")
    samples = []
    for row in random_rows(len(answers), NUM_SAMPLES):
        if isinstance(part, spans.Questions):
            is_right = bool(spans.figures([answers[row]], part.rows([row]))["exact"])
            sample = [("question", part.questions[row]), ("answer", answers[row])]
            label = " or ".join(dict.fromkeys(text for text, _ in part.answers[row])) or "no answer"
        else:
            label = str(part.labels[row])
            is_right = None if run.codec.labels is None else answers[row] == label
            sample = [("text", column[row]) for column in part.columns]
            sample += [("label", label), ("predicted", answers[row])]
            sample += [] if unknown is None else [("unsure", f"{unknown[row]:.3f}")]
        # A score is neither right nor wrong.
        sample += [] if is_right is None else [verdict("" if is_right else f"{label} is right")]
        samples.append(sample)
    return Shown(samples)


def report(run, part, record, outputs, shown):
    lines = [
        f"{name}: {group['count']} examples, {100 * group['accuracy']:.1f}% right, entropy {group['entropy']:.3f} nats"
        for name, group in record["report"].get("certainty", {}).items()
    ]
    lines += ["", *sample_lines(shown.samples, NUM_SHOWN)]
    unknown = outputs.get("unknown")
    if unknown is None:
        return lines
    texts = part.part
    lines.append("the examples that the model knows least of, by its draws:")
    for row in np.argsort(-unknown)[:NUM_SHOWN]:
        example = " | ".join(column[row] for column in texts.columns)
        lines.append(f"{texts.labels[row]}, predicted {outputs['answers'][row]}: {example}")
    return lines


# The figure of Table 5 for each task whose figure it is not the accuracy.
_OF_TASKS = {"cola": ("matthews",), "sts": ("pearson",), "squad1": ("exact", "f1"), "squad2": ("exact", "f1")}
_SHORT = {"exact": " EM", "f1": " F1"}


def fan(comparison):
    """Return the column of Table 5 of Fan et al. 2020 of the task, beside the paper's figures; none of a task of one's
    own."""
    task = comparison.planned[0].options.texts.task
    if TASKS[task].columns[0] == "text":
        return []
    columns = [
        Column(task + _SHORT.get(name, ""), f"{_TASK}.{name}", 2, 100.0) for name in _OF_TASKS.get(task, ("accuracy",))
    ]
    title = "Table 5 of Fan et al. 2020"
    return [beside(title, "fan_5", columns, comparison.records, first_of=lambda name: (title_from(name, MODELS.get),))]


LAYOUTS = {
    "fan": fan,
    "uncertainty": Uncertainty(predictor, other_texts, corruption=0.3, refuse=require_classes),
}
