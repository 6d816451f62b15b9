"""A graph whose nodes are patches of scikit-learn's two photographs: data of another kind than digits.

    python docs/experiments/photographs.py other.npz

The features of a node are the 8 x 8 pixels of a patch, scaled from 0 to 16 like the pixels of the digits. There are
1,000 patches, and each has edges to its eight nearest patches.
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
