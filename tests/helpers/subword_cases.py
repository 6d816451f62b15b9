"""Texts for the tests of subwords, and strings of a tensor."""

CORPUS = [
    "The cat sat on the mat.",
    "A cat and a dog sat on a mat",
    "the dogs that sat there",
    "São Tomé, não é isto?",
    "это кот, а это собака",
    "猫がいる ＡＢＣ",
]
SEGMENTED = ["the cat@@ s s@@ at", "the un@@ like@@ ly cat", "the <end>"]


def strings(tensor):
    return [value.decode() for value in tensor.numpy()]
