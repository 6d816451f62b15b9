"""One training run: from options to a run folder with everything in it."""

import dataclasses
import zipfile

import keras

import keras_vattn
from applications.common.callbacks import Checkpoint, EpochSeconds, HistoryWriter, StepProgress, StopOnNaN
from applications.common.errors import InputError
from applications.common.process import refuse_fewer_epochs, set_up
from applications.common.runs import RunFolder, environment_record, replacing, write_json
from applications.text.embeddings import load_embeddings
from applications.text.text import PAD
from applications.ved import model as ved_model
from applications.ved.data import Codec, EncodedPairs, load_splits, load_splits_of, unique_sources
from applications.ved.embedded import cldr_version
from applications.ved.evaluation import decode_all, evaluate_split, quality, sample_report
from applications.ved.generation import Generator, export
from applications.ved.options import Options, find_row, validate
from applications.ved.reporting import write_pictures, write_report

# What a resumed run may change: it names no property of the model or its data.
MAY_DIFFER = ("resume", "out", "export", "epochs")


class DecodeValidation(keras.callbacks.Callback):
    """Decodes validation inputs every few epochs and adds BLEU-2, BLEU-4, entropy (nats) and Dist-1 to the log (Figures
    4 and 5).

    Entropy and Dist-1 are those of `num_draws` draws; a deterministic row has none.
    """

    def __init__(self, generator, codec, options, pairs):
        super().__init__()
        self.generator, self.codec, self.options = generator, codec, options
        sources, self.references = unique_sources(codec, pairs, options.num_decoded)
        self.ids, _ = codec.source.encode_numpy(sources, options.max_source_length)

    def on_epoch_end(self, epoch, logs=None):
        if (epoch + 1) % self.options.decode_every:
            return
        decoded = decode_all(lambda batch, _: self.generator.greedy(batch)["ids"], self.codec.target, self.ids)
        report = quality(decoded, self.references)
        logs |= {"val_map_bleu_2": report["bleu_2"], "val_map_bleu_4": report["bleu_4"]}
        if find_row(self.options.row).stochastic:
            report, _ = sample_report(self.generator, self.codec, self.options, self.ids, self.references)
            logs |= {f"val_{name}": report[name] for name in ("bleu_2", "bleu_4", "entropy", "dist_1")}


def compile_model(models, options, steps_per_epoch):
    """Compile with the summed cross-entropy, Adam, and a learning rate that decays once an epoch."""
    schedule = keras.optimizers.schedules.ExponentialDecay(
        options.learning_rate, steps_per_epoch, options.learning_rate_decay, staircase=True
    )
    models.training.compile(
        optimizer=keras.optimizers.Adam(schedule, global_clipnorm=options.clip_norm),
        loss=keras_vattn.SequenceCrossentropy(ignore_class=PAD),
        metrics=[keras_vattn.Perplexity("plug-in", ignore_class=PAD)],
        jit_compile=options.jit,
    )
    # Variables that are made while a step is traced have TensorFlow trace it twice.
    models.training.optimizer.build(models.training.trainable_variables)


def load_run(path):
    """Return the folder, options, codec and models of a finished run, its weights loaded."""
    folder = RunFolder.load(path)
    try:
        options = Options(**folder.config)
        validate(options)
    except (TypeError, InputError) as error:
        raise InputError(f"{folder.path / 'config.yaml'} does not hold the options of train: {error}") from error
    set_up(options)
    codec = Codec.load(folder, options)
    models = ved_model.build(options, codec.source.vocabulary_size, codec.target.vocabulary_size)
    weights = folder.path / "model.weights.h5"
    if not weights.exists():
        raise InputError(
            f"{folder.path}: the run has not finished: model.weights.h5 is missing. Finish it with train --resume."
        )
    try:
        models.training.load_weights(weights)
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"{weights} cannot be loaded: {error}") from error
    return folder, options, codec, models


def train(options):
    """Train one row, report on held-out pairs, write samples, pictures and the SavedModel."""
    validate(options)
    if options.embeddings is None and options.embeddings_words is not None:
        raise InputError("--embeddings-words is given without --embeddings.")
    config = dataclasses.asdict(options)
    if RunFolder.check(options.out, config, options.resume, MAY_DIFFER) is not None:
        refuse_fewer_epochs(options)
    set_up(options)
    print(f"reading pairs for {options.row}", flush=True)
    splits = load_splits_of(RunFolder.load(options.out), options) if options.resume else load_splits(options)
    codec = Codec.fit(options, splits.train)
    matrices = _pretrained(options, codec)
    folder = RunFolder.open(options.out, config, options.resume, MAY_DIFFER)
    splits.remember(folder)
    codec.save(folder)
    encoded = {
        name: EncodedPairs.encode(options, codec, pairs)
        for name, pairs in (("train", splits.train), ("valid", splits.valid), ("test", splits.test))
        if pairs is not None
    }
    for name, part in encoded.items():
        print(
            f"{name}: " + ", ".join(f"{value} {key.replace('_', ' ')}" for key, value in part.report.items()),
            flush=True,
        )
    models, generator, rows = _fit(options, folder, codec, splits, encoded, matrices)
    archive_path = folder.file("model.keras")
    with replacing(archive_path) as temporary:
        models.training.save(temporary)
    # HDF5 ends the process when it closes a file on a full disk; this file is closed by Python.
    with zipfile.ZipFile(archive_path) as archive, replacing(folder.file("model.weights.h5")) as temporary:
        temporary.write_bytes(archive.read("model.weights.h5"))
    split = "valid" if splits.test is None else "test"
    report, sentences = evaluate_split(
        generator, models, codec, options, splits.split(split), encoded[split], options.max_test_sources
    )
    record = {
        "row": options.row,
        "seed": options.seed,
        "split": split,
        "report": report,
        "train_seconds": sum(row["seconds"] for row in rows),
        "epochs": len(rows),
        "steps": len(rows) * encoded["train"].num_batches(options),
        "parameters": models.training.count_params(),
        "data": {name: part.report for name, part in encoded.items()},
        "embedded_data": cldr_version() if options.train_source is None and options.train_table is None else None,
        "options": dataclasses.asdict(options),
        "environment": environment_record(),
    }
    write_report(folder, record, sentences)
    write_pictures(folder, options, generator, codec, rows, sentences)
    if options.export:
        export(generator, folder.file("saved_model"))
    # Last, so that a folder with this file holds everything.
    write_json(folder.file("metrics.json"), record)
    print((folder.path / "report.txt").read_text(encoding="utf-8"))
    print(f"written: {folder.path}", flush=True)


def _pretrained(options, codec):
    if options.embeddings is None:
        return None
    matrices = []
    for side, vocabulary in (("source", codec.source_vocabulary), ("target", codec.target_vocabulary)):
        matrix, num_found = load_embeddings(
            options.embeddings, vocabulary, options.embedding_width, options.embeddings_words, options.data_seed
        )
        print(f"{side} embeddings: {num_found} of {len(vocabulary)} words found", flush=True)
        matrices.append(matrix)
    return matrices


def _fit(options, folder, codec, splits, encoded, matrices):
    """Run the one or two stages; return the models, the generator that decoded validation, and the history rows."""
    stages = [(True, options.epochs)]
    if find_row(options.row).two_stages:
        stages.insert(0, (False, options.stage_one_epochs))
    previous, rows, first_epoch = None, [], 0
    for with_attention, last_epoch in stages:
        models = ved_model.build(options, codec.source.vocabulary_size, codec.target.vocabulary_size, with_attention)
        if matrices is not None:
            models.set_embeddings(*matrices)
        if previous is not None:
            ved_model.add_attention(previous, models)
        compile_model(models, options, encoded["train"].num_batches(options))
        name = "checkpoint.npz" if with_attention else "stage_one.npz"
        checkpoint = Checkpoint(folder.file(f"checkpoints/{name}"))
        restored_epoch, restored_rows = checkpoint.restore(models.training)
        if restored_epoch:
            first_epoch, rows = restored_epoch, restored_rows
            print(f"resuming after epoch {first_epoch}", flush=True)
        checkpoint.rows = list(rows)
        history = HistoryWriter(folder.file("history.csv"), rows)
        generator = Generator(models, codec, options)
        if first_epoch < last_epoch:
            models.training.fit(
                encoded["train"].batches(options, shuffle=True, first_epoch=first_epoch, num_epochs=None),
                validation_data=encoded["valid"].batches(options),
                initial_epoch=first_epoch,
                epochs=last_epoch,
                steps_per_epoch=encoded["train"].num_batches(options),
                verbose=2,
                shuffle=False,
                callbacks=[
                    StopOnNaN(),
                    StepProgress(),
                    EpochSeconds(),
                    DecodeValidation(generator, codec, options, splits.valid),
                    checkpoint,
                    history,
                    keras.callbacks.TensorBoard(folder.file("logs"), write_graph=False),
                ],
            )
        else:
            history.write()
        rows, first_epoch, previous = list(history.rows), last_epoch, models
    return models, generator, rows
