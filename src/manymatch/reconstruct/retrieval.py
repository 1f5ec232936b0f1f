"""Images that look alike: one vector per image, pooled from the descriptors of its keypoints."""

from __future__ import annotations

import dataclasses
import itertools
from typing import TYPE_CHECKING, Any

import numpy as np

from manymatch.features.maps import unit_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from manymatch._validate import IndexArray
    from manymatch.features.extractor import Features

# Words of the vocabulary of a source; images and descriptors of an image that it is trained on;
# rounds of its training. Means of powers instead of words find 5 to 10 % fewer overlapping images.
WORDS, TRAINING_IMAGES, TRAINING_ROWS, ROUNDS = 64, 100, 200, 10
# Rows of the table of similarities that are in memory at the same time.
_BLOCK = 512


@dataclasses.dataclass(frozen=True, eq=False)
class Vocabulary:
    """Typical descriptors of every source, against which those of an image are pooled (VLAD).

    `words` has an array (W, D) for each source, with W = 0 where it has no descriptors.
    """

    words: tuple[NDArray[np.float32], ...]

    @classmethod
    def trained(cls, features: Iterable[Sequence[Features]], seed: int = 0) -> Vocabulary:
        """Cluster descriptors of some images, given by their features of every source."""
        rng = np.random.default_rng(seed)
        samples = [
            [rows[rng.permutation(len(rows))[:TRAINING_ROWS]] for rows in map(_rows, kinds)]
            for kinds in features
            if kinds
        ]
        sources = zip(*samples, strict=True)
        return cls(tuple(_clustered(np.concatenate(own), rng) for own in sources))

    def vector(self, kinds: Sequence[Features]) -> NDArray[np.float32]:
        """Pool the descriptors of an image; the vector has length 1, or 0 without descriptors.

        A word gets the sum of what its descriptors differ from it. Words and sources count alike.
        """
        if not kinds:
            return np.zeros(sum(map(np.size, self.words)), np.float32)
        pooled = []
        for kind, words in zip(kinds, self.words, strict=True):
            rows = _rows(kind)
            total = np.zeros(words.shape, np.float32)
            if rows.size and words.size:
                belongs = _belongs(rows, words)
                total = belongs @ rows - belongs.sum(axis=1, keepdims=True) * words
            roots = np.sign(total) * np.sqrt(np.abs(total))
            pooled.append(unit_rows(unit_rows(roots).reshape(1, -1))[0])
        return np.asarray(unit_rows(np.concatenate(pooled)[None])[0])


def image_vectors(features: Iterable[Sequence[Features]], seed: int = 0) -> NDArray[np.float32]:
    """Describe every image by a row (N, D) of length 1, so that overlapping ones are similar.

    `features` are those of every source for each image, as `Matcher.extract` returns them. They are
    read once; the first 100 images, on which the vocabulary is trained, are in memory together. An
    image without descriptors has zeros. D is 64 times the length of a descriptor, of all sources.
    """
    images = iter(features)
    first = list(itertools.islice(images, TRAINING_IMAGES))
    vocabulary = Vocabulary.trained(first, seed)
    rows = [vocabulary.vector(kinds) for kinds in itertools.chain(first, images)]
    return np.array(rows, np.float32).reshape(len(rows), sum(map(np.size, vocabulary.words)))


def look_alikes(
    vectors: NDArray[np.float32], k: int, others: NDArray[np.float32] | None = None
) -> IndexArray:
    """Find the places (N, k) of the k most similar images of every image (N, D), the best first.

    They are looked for among `others` (M, D), or among the images themselves, each without itself;
    there are fewer than k if there are fewer images. Of equally similar ones the earlier is first.
    """
    among = vectors if others is None else others
    number = max(min(k, len(among) - (others is None)), 0)
    found = np.empty((len(vectors), number), np.int64)
    for start in range(0, len(vectors), _BLOCK):
        similarity = vectors[start : start + _BLOCK] @ among.T
        if others is None:
            places = np.arange(len(similarity))
            similarity[places, start + places] = -np.inf
        order = np.argsort(-similarity, axis=1, kind="stable")
        found[start : start + _BLOCK] = order[:, :number]
    return found


def _rows(kind: Features) -> NDArray[np.float32]:
    """Descriptors (N, D) of a kind as numbers; packed bits become -1 and 1 over the root of D."""
    rows: NDArray[Any] = kind.descriptors
    if rows.dtype != np.uint8:
        return rows
    return unit_rows(2.0 * np.unpackbits(rows, axis=1).astype(np.float32) - 1.0)


def _belongs(rows: NDArray[np.float32], words: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return (W, N) ones where a word is the nearest of a row, else zeros."""
    nearest = np.argmin(np.sum(words**2, axis=1) - 2.0 * rows @ words.T, axis=1)
    return np.asarray(np.arange(len(words))[:, None] == nearest, dtype=np.float32)


def _clustered(rows: NDArray[np.float32], rng: np.random.Generator) -> NDArray[np.float32]:
    """Return the centres (W, D) of k-means; the first ones are drawn from the rows."""
    words = rows[rng.permutation(len(rows))[:WORDS]]
    for _ in range(ROUNDS if words.size else 0):
        belongs = _belongs(rows, words)
        count = belongs.sum(axis=1, keepdims=True)
        words = np.where(count > 0, belongs @ rows / np.maximum(count, 1.0), words)
    return words
