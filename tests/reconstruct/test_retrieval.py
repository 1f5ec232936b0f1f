"""Vectors of images, and the images whose vectors are similar."""

from __future__ import annotations

import weakref

import numpy as np

from manymatch.features.extractor import Features
from manymatch.features.maps import unit_rows
from manymatch.reconstruct import retrieval
from manymatch.reconstruct.retrieval import Vocabulary, image_vectors, look_alikes


def features(descriptors):
    number = len(descriptors)
    return Features(np.zeros((number, 2)), np.zeros(number, np.float32), descriptors, (64, 48))


def places(number=6, images=4, rows=300, dim=16, seed=0):
    """Images of some places, all from one: half of the descriptors of an image are the place's."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(number):
        own = rng.normal(size=(rows, dim))
        for _ in range(images):
            seen = own[rng.permutation(rows)[: rows // 2]]
            seen = seen + 0.1 * rng.normal(size=seen.shape)
            clutter = rng.normal(size=(rows - len(seen), dim))
            made.append((features(unit_rows(np.concatenate([seen, clutter]).astype(np.float32))),))
    return made, np.repeat(np.arange(number), images)


def test_images_of_one_place_look_alike():
    images, place = places()
    found = look_alikes(image_vectors(images), 3)
    assert np.mean(place[found] == place[:, None]) > 0.95


def test_the_words_of_a_map_describe_new_images():
    images, place = places(images=5)
    new = np.arange(len(images)) % 5 == 0
    known = [kinds for kinds, is_new in zip(images, new, strict=True) if not is_new]
    vocabulary = Vocabulary.trained(known)
    vectors = np.stack([vocabulary.vector(kinds) for kinds in images])
    found = look_alikes(vectors[new], 4, vectors[~new])
    assert np.mean(place[~new][found] == place[new][:, None]) > 0.95


def test_every_source_counts():
    images, place = places()
    rng = np.random.default_rng(5)
    noise = [features(unit_rows(rng.normal(size=(200, 8)).astype(np.float32))) for _ in images]
    both = [(other, own[0]) for other, own in zip(noise, images, strict=True)]
    vectors = image_vectors(both)
    assert vectors.shape == (len(images), retrieval.WORDS * (8 + 16))
    halves = np.linalg.norm(vectors[:, : 8 * retrieval.WORDS], axis=1)
    np.testing.assert_allclose(halves, np.sqrt(0.5), rtol=1e-5)
    assert np.mean(place[look_alikes(vectors, 3)] == place[:, None]) > 0.8
    # A source that takes images has no descriptors.
    without = Features(
        np.zeros((0, 2)), np.zeros(0, np.float32), np.zeros((0, 0), np.float32), (64, 48)
    )
    alone = image_vectors([(without, own[0]) for own in images])
    np.testing.assert_array_equal(alone, image_vectors(images))


def test_vectors_depend_on_images_and_seed_only():
    images, _ = places(number=3)
    vectors = image_vectors(images, seed=3)
    np.testing.assert_array_equal(vectors, image_vectors(iter(images), seed=3))
    assert not np.array_equal(vectors, image_vectors(images, seed=4))
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, rtol=1e-5)


def test_images_of_an_iterator_are_let_go():
    alive = weakref.WeakSet()
    most = 0

    def stream():
        nonlocal most
        rng = np.random.default_rng(0)
        for _ in range(3 * retrieval.TRAINING_IMAGES):
            most = max(most, len(alive))
            image = features(unit_rows(rng.normal(size=(20, 4)).astype(np.float32)))
            alive.add(image)
            yield (image,)
            del image

    assert len(image_vectors(stream())) == 3 * retrieval.TRAINING_IMAGES
    assert retrieval.TRAINING_IMAGES <= most <= retrieval.TRAINING_IMAGES + 2


def test_packed_bits_and_images_without_keypoints():
    rng = np.random.default_rng(1)
    bits = rng.integers(0, 256, (4, 100, 8), dtype=np.uint8)
    images = [(features(own),) for own in (*bits, bits[0][::2], np.zeros((0, 8), np.uint8))]
    vectors = image_vectors(images)
    assert vectors.shape == (6, 64 * retrieval.WORDS)
    assert look_alikes(vectors, 1)[0] == 4
    assert not vectors[5].any()
    assert image_vectors([]).shape == (0, 0)


def test_image_without_features_has_a_vector_of_zeros():
    images, _ = places(number=2)
    vectors = image_vectors([(), *images])
    assert not vectors[0].any()
    np.testing.assert_array_equal(vectors[1:], image_vectors(images))
    assert image_vectors([(), ()]).shape == (2, 0)
    assert look_alikes(image_vectors([(), ()]), 1).tolist() == [[1], [0]]


def test_look_alikes_are_the_largest_products(monkeypatch):
    monkeypatch.setattr(retrieval, "_BLOCK", 7)
    rng = np.random.default_rng(2)
    vectors = unit_rows(rng.normal(size=(30, 5)).astype(np.float32))
    products = vectors @ vectors.T
    np.fill_diagonal(products, -2.0)
    expected = np.argsort(-products, axis=1)[:, :4]
    np.testing.assert_array_equal(look_alikes(vectors, 4), expected)
    others = look_alikes(vectors[:9], 40, vectors)
    assert others.shape == (9, 30)
    assert others.dtype == np.int64
    np.testing.assert_array_equal(others[:, 0], np.arange(9))
    assert look_alikes(vectors[:1], 3).shape == (1, 0)
    np.testing.assert_array_equal(
        look_alikes(np.ones((3, 2), np.float32), 2), [[1, 2], [0, 2], [0, 1]]
    )
