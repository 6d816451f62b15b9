"""Writes a graph of out-of-distribution data for a model of digits: patches of scikit-learn's two photographs.

    python docs/experiments/photographs.py other.npz

Each of the 1,000 nodes is a patch of 8 x 8 pixels. Its features are the pixels, scaled from 0 to 16 like the pixels of
the digits, and its edges lead to the eight patches with the most similar features.
"""

import sys

import numpy as np
from sklearn.datasets import load_sample_image
from sklearn.feature_extraction.image import extract_patches_2d
from sklearn.neighbors import kneighbors_graph

patches = []
for name in ("china.jpg", "flower.jpg"):
    image = load_sample_image(name)[::2, ::2].mean(axis=-1) / 255.0 * 16.0
    patches.append(extract_patches_2d(image, (8, 8), max_patches=500, random_state=0).reshape(500, 64))
features = np.concatenate(patches).astype("float32")
edges = np.stack(kneighbors_graph(features, 8).nonzero(), axis=1)
np.savez(sys.argv[1], features=features, edges=edges, labels=np.zeros(len(features), int))
