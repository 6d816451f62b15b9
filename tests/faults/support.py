from faults.fault import Fault

BATTERY = "tests/battery"
PREDICTIVE = "tests/draws"

FAULTS = [
    Fault(
        "the same noise every call",
        "random.py",
        "seed_generator.next()",
        "seed_generator.state.value",
        (BATTERY,),
        "seeds or posterior_draws",
    ),
    Fault(
        "the same noise in every replica",
        "random.py",
        "    return fold_in(seed, context.replica_id_in_sync_group)\n",
        "    return seed\n",
        (BATTERY,),
        "replicas_draw_differently and gaussian-attention",
    ),
    Fault(
        "the Gaussian KL close to its prior in plain float32",
        "support/gaussian.py",
        "tf.where(near, series, growth - x)",
        "growth - x",
        ("tests/support/test_gaussian.py",),
        "nothing_cancels",
    ),
    Fault(
        "the log sigma of a Gaussian prior left out",
        "support/gaussian.py",
        "        distance = distance * ops.exp(-prior_log_scale)\n",
        "",
        ("tests/support/test_gaussian.py", "tests/layers/test_gaussian_latent.py"),
        "of_the_prior or ones_own",
    ),
    Fault(
        "predictive: all draws of a stack from one seed",
        "random.py",
        "lambda seed: draw(part, seed), seeds,",
        "lambda seed: draw(part, seeds[0]), seeds,",
        (PREDICTIVE, "tests/test_random.py"),
        "stack or however_many",
    ),
    Fault(
        "normals: the radius without its sign, so that half of the circle is never drawn",
        "random.py",
        "    radius = tf.sign(signed) * tf.sqrt(",
        "    radius = tf.sqrt(",
        ("tests/test_random.py",),
        "distributions or pair",
    ),
    Fault(
        "normals: one word for radius and angle",
        "random.py",
        "    v = tf.cast(words[1], tf.float32) * 2.0**-31\n",
        "    v = tf.cast(words[0], tf.float32) * 2.0**-31\n",
        ("tests/test_random.py",),
        "distributions or pair",
    ),
    Fault(
        "gamma draws: the gradient of the quantile without its corrections",
        "random.py",
        "        eta_slope = 0.5 * v + inverse * _quantile(_QUANTILE_SLOPE, inverse, v)\n",
        "        eta_slope = 0.5 * v\n",
        ("tests/test_random.py",),
        "gamma",
    ),
    Fault(
        "gamma draws: one uniform for both powers",
        "random.py",
        "fold_in(seed, number))) for number in (1, 2))",
        "fold_in(seed, 1))) for number in (1, 2))",
        ("tests/test_random.py",),
        "gamma",
    ),
]
