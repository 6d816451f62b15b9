"""What each of several processes has of a machine."""

import os


def hidden_gpus():
    """Return the names of the GPUs, a list of str, and leave these to the processes that this one starts, whose memory
    it would take."""
    import tensorflow as tf

    count = len(tf.config.list_physical_devices("GPU"))
    tf.config.set_visible_devices([], "GPU")
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return visible.split(",")[:count] if visible else list(map(str, range(count)))


def environment_of(gpus, num_jobs, index):
    """Return the environment variables of a job, a dictionary: its share of the cores, GPUs of its own or, where there
    are more jobs than GPUs, one that it shares.

    Args:
        gpus: Names of the GPUs, as CUDA_VISIBLE_DEVICES has them.
        num_jobs: Number of jobs at the same time.
        index: Which of these it is, from 0 on.
    """
    threads = str(max(1, (os.cpu_count() or 1) // num_jobs))
    found = dict.fromkeys(("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS"), threads)
    if gpus:
        share = len(gpus) // num_jobs  # the same for every job, so that runs under a strategy are alike
        found["CUDA_VISIBLE_DEVICES"] = ",".join(gpus[index * share :][:share] or [gpus[index % len(gpus)]])
        if len(gpus) < num_jobs:
            found["TF_FORCE_GPU_ALLOW_GROWTH"] = "true"
    return found
