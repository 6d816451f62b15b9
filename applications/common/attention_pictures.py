"""Pictures of where models look: of a report, and one an epoch, the attention over training."""

import base64

import keras
import numpy as np
import tensorflow as tf

import keras_vattn

# Examples in the picture of an epoch.
NUM_EXAMPLES = 3


class AttentionPictures(keras.callbacks.Callback):
    """Draws epochs/NUMBER.png after every `picture_every` epochs: where the model looks in some validation examples,
    the same in every epoch.

    Args:
        run: `TrainingRun` of a program that has `Application.attention`.
    """

    def __init__(self, run):
        super().__init__()
        self.run = run

    def on_epoch_end(self, epoch, logs=None):
        if (epoch + 1) % self.run.options.fit.picture_every == 0:
            alignments = self.run.application.attention(self.run, self.run.data["valid"])[:NUM_EXAMPLES]
            path = self.run.folder.file(f"epochs/{epoch + 1:04d}.png")
            if alignments and alignments[0].image:
                draw_on_images(alignments, path)
            elif alignments:
                draw_alignments({"": alignments}, path)
            else:
                print("--picture-every: this model, or these data, have no attention to draw", flush=True)


def draw_alignments(of_models, path):
    """Draw alignments of words side by side, a row an example where there are several panels, and return the figure.

    A posterior is drawn over its prior (Deng et al. 2018, figures 3 and 4), and of heads the mean.

    Args:
        of_models: Dictionary from the names of models, "" for a single one, to lists of `Alignment`, as many of each.
        path: PNG file, or `None`.
    """
    panels = []
    for examples in zip(*of_models.values(), strict=True):
        for name, example in zip(of_models, examples, strict=True):
            weights = {kind: _mean_of_heads(matrix) for kind, matrix in example.weights.items()}
            over = weights.pop("posterior") if {"prior", "posterior"} <= weights.keys() else None
            for kind, matrix in weights.items():
                is_both = kind == "prior" and over is not None
                title = ": ".join(filter(None, (name, "prior (red), posterior (blue)" if is_both else kind)))
                panels.append((matrix, example.source, example.target, title, over if is_both else None))
    matrices, sources, targets, titles, others = map(list, zip(*panels, strict=True))
    num_examples = len(next(iter(of_models.values())))
    return keras_vattn.plots.alignment_heat_map(
        matrices,
        sources,
        targets,
        titles,
        panels_per_row=len(panels) // num_examples if len(panels) > num_examples else None,
        path=path,
        other=others,
    )


def draw_on_images(alignments, path):
    """Draw where a model looks in images, a panel for each word of each `Alignment`."""
    panels = [
        (_pixels(example.image), row, example.boxes, f"{kind}: {word}")
        for example in alignments
        for kind, matrix in example.weights.items()
        for word, row in zip(example.target, matrix, strict=True)
    ]
    return keras_vattn.plots.image_attention(*map(list, zip(*panels, strict=True)), path=path)


def _mean_of_heads(weights):
    weights = np.asarray(weights)
    return weights.mean(axis=tuple(range(weights.ndim - 2)))


def _pixels(address):
    return tf.io.decode_image(base64.b64decode(address.partition(",")[2])).numpy()
