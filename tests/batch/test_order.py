"""The order of the work, blocks and shards."""

import numpy as np
import pytest

from manymatch.batch.batch import cutting, local_order, pair_blocks, shard_of
from manymatch.batch.parts import read_run
from manymatch.io.pairs import Pair, exhaustive_pairs


def loads(pairs, order, kept=60):
    """How often an image is read where the latest ones are kept."""
    recent, count = {}, 0
    for index in order:
        for path in (pairs[index].path0, pairs[index].path1):
            count += path not in recent
            recent.pop(path, None)
            recent[path] = None
            if len(recent) > kept:
                del recent[next(iter(recent))]
    return count


def listed_pairs(tmp_path, kind):
    places = {
        "all": [(i, j) for i in range(90) for j in range(i + 1, 90)],
        "sequence": [(i, i + step) for i in range(400) for step in range(1, 11)],
    }[kind]
    rng = np.random.default_rng(0)
    shuffled = rng.permutation(places)
    names = rng.permutation(np.max(places) + 1)
    return [Pair(str(i), str(j), tmp_path / str(i), tmp_path / str(j)) for i, j in names[shuffled]]


@pytest.mark.parametrize(("kind", "most", "images"), [("all", 240, 15), ("sequence", 900, 16)])
def test_order_keeps_images_together(tmp_path, kind, most, images):
    """Few images are read again however small the memory is, and a block needs few images."""
    pairs = listed_pairs(tmp_path, kind)
    order = local_order(pairs)
    assert sorted(order) == list(range(len(pairs)))
    assert loads(pairs, order) <= most < loads(pairs, range(len(pairs))) / 5
    cut = pair_blocks(pairs, [len(pairs)], 32)
    needed = [len({p for i in one for p in (pairs[i].path0, pairs[i].path1)}) for one in cut]
    # Shuffled pairs, cut as they are listed, need nearly two images each.
    assert np.mean(needed) <= images


def test_order_is_the_same_for_any_container(tmp_path):
    for name in "abcde":
        (tmp_path / f"{name}.png").write_bytes(b"")
    pairs = exhaustive_pairs(tmp_path)
    assert local_order(pairs).tolist() == local_order(list(pairs)).tolist()


@pytest.mark.parametrize("text", ["0/4", "5/4", "a/b", "3", "3/", "-1/4", "1/0", 3, "1/4/2", ""])
def test_malformed_shard_is_refused(text):
    with pytest.raises(ValueError, match='shard must be a text such as "3/16"'):
        shard_of(text)


@pytest.mark.parametrize(
    ("pairs", "network", "size"),
    [(1, False, 1), (45, False, 1), (640, False, 10), (10**6, False, 32), (10**6, True, 8)],
)
def test_blocks_are_small_and_smaller_where_there_are_few_pairs(tmp_path, pairs, network, size):
    found, ends = cutting(tmp_path, range(pairs), pairs, None, network=network)
    assert (found, ends) == (size, [pairs])
    assert cutting(tmp_path, range(pairs), pairs, 7, network=network)[0] == 7


def test_limit_begins_a_stage_of_its_own(tmp_path):
    """Its blocks have exactly the first pairs, and stay as they are when more is asked for."""
    pairs = listed_pairs(tmp_path, "sequence")[:100]
    assert read_run(tmp_path) is None
    _, ends = cutting(tmp_path, pairs, 30, None, network=False)
    blocks = pair_blocks(pairs, ends, 8)
    assert sorted(np.concatenate(blocks)) == list(range(30))
    (tmp_path / "run.json").write_text('{"format": 7, "block": 8, "ends": [30]}')
    assert cutting(tmp_path, pairs, 20, None, network=False) == (8, [30])
    assert cutting(tmp_path, pairs, 100, None, network=False) == (8, [30, 100])
    more = pair_blocks(pairs, [30, 100], 8)
    assert [one.tolist() for one in more[: len(blocks)]] == [one.tolist() for one in blocks]
    assert sorted(np.concatenate(more)) == list(range(100))
