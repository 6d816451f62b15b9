"""Faults of captioning: files of captions, metrics, the models, where they look."""

from faults.fault import Fault

CAPTIONS = "tests/applications/captioning/test_captions.py"
METRICS = "tests/applications/captioning/test_caption_metrics.py"
MODEL = "tests/applications/captioning/test_model.py"
GENERATION = "tests/applications/captioning/test_generation.py"
EVALUATION = "tests/applications/captioning/test_evaluation.py"

FAULTS = [
    Fault(
        "captioning: the rest of validation is not trained on",
        "applications/captioning/captions.py",
        '"restval": "train"',
        '"restval": "valid"',
        (CAPTIONS,),
        "karpathy",
    ),
    Fault(
        "captioning: an image in two parts",
        "applications/captioning/captions.py",
        "common = sorted(set(parts[first].ids) & set(parts[second].ids))",
        "common = []",
        (CAPTIONS,),
        "one_part_only",
    ),
    Fault(
        "captioning: two annotations of one number",
        "applications/captioning/captions.py",
        'number = str(annotation["id"])',
        "number = str(id(annotation))",
        (CAPTIONS,),
        "an_annotation_belongs",
    ),
    Fault(
        "captioning: equal weights point at the first region",
        "applications/captioning/metrics.py",
        "pair = (row[cell] == row.max()) / np.count_nonzero(row == row.max()), 1.0 / len(row)",
        "pair = float(cell == row.argmax()), 1.0 / len(row)",
        (METRICS,),
        "equal_weights",
    ),
    Fault(
        "captioning: the baseline of a drawn region has a draw in it",
        "applications/captioning/model.py",
        "at_mean = super().call(inputs, memory, **masks, training=False) if training else decoded",
        "at_mean = super().call(inputs, memory, **masks, training=training)",
        (MODEL,),
        "expected_states",
    ),
    Fault(
        "captioning: training looks at regions that are none",
        "applications/captioning/model.py",
        "        memory_mask=mask,\n        return_attention_scores=True,",
        "        return_attention_scores=True,",
        (MODEL,),
        "from_its_weights",
    ),
    Fault(
        "captioning: draws of a prior of small shapes are those of large ones",
        "distributions/dirichlet.py",
        "log_gamma + ops.log(random.uniform(shape, second)) / concentration",
        "log_gamma",
        (EVALUATION, "tests/distributions"),
        "draws_of_the_prior or test_draws",
    ),
    Fault(
        "captioning: a beam looks at another image",
        "applications/captioning/serve.py",
        "memory, mask = (tf.repeat(x, num_beams, axis=0) for x in (memory, mask))",
        "memory, mask = (tf.tile(x, [num_beams] + [1] * (len(x.shape) - 1)) for x in (memory, mask))",
        (GENERATION,),
        "teacher_forcing",
    ),
    Fault(
        "images: features are made of all images for a few that are named",
        "applications/vision/program.py",
        "regions = codec.regions_of(sources.some(ids))",
        "regions = codec.regions_of(sources)",
        ("tests/applications/vqa/test_vqa_generation.py",),
        "lines_of_ids",
    ),
]
