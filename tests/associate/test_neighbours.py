"""associate: cases worked out by hand, limits, bad input, determinism."""

import os
import subprocess
import sys
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from manymatch import _core
from manymatch.associate import neighbours
from manymatch.associate.neighbours import OPERATORS, associate, associate_owned
from manymatch.features.registry import load_detector
from tests.oracles import associate as oracle
from tests.support.data_folder import data_folder


def pairs(result):
    return [tuple(edge) for edge in result[0].tolist()]


@pytest.fixture
def synthetic():
    rng = np.random.default_rng(3)
    x0 = rng.normal(size=(700, 96))
    x1 = x0[rng.integers(0, 700, 600)] + 0.8 * rng.normal(size=(600, 96))
    return x0, x1


def test_operators_by_hand():
    # Angles in degrees: image 1 has two candidates near the first keypoint of image 0.
    def at(*degrees):
        return np.stack([np.cos(np.radians(degrees)), np.sin(np.radians(degrees))], axis=1)

    x0, x1 = at(0, 40), at(5, 12, 90)
    assert pairs(associate(x0, x1, 1, "mutual")) == [(0, 0)]
    assert pairs(associate(x0, x1, 1, "oneway")) == [(0, 0), (1, 1)]
    assert pairs(associate(x0, x1, 1, "union")) == [(0, 0), (0, 1), (1, 1), (1, 2)]
    edges, similarity, rank = associate(x0, x1, 2, "mutual")
    assert edges.tolist() == [[0, 0], [0, 1], [1, 1], [1, 0]]
    assert rank.tolist() == [1, 2, 2, 2]
    assert similarity == pytest.approx(np.cos(np.radians([5, 12, 28, 35])), abs=1e-6)


@pytest.mark.parametrize("k", [1, 5, 40])
def test_many_copies_at_random_places(k):
    rng = np.random.default_rng(0)
    kinds = rng.normal(size=(6, 83)).astype(np.float32)
    x0, x1 = kinds[rng.integers(0, 6, 130)], kinds[rng.integers(0, 6, 150)]
    for operator in ("mutual", "oneway", "union"):
        result = associate(x0, x1, k, operator)
        expected = oracle.associate(x0, x1, k, operator)
        assert (pairs(result), result[1].tolist(), result[2].tolist()) == expected


@pytest.mark.parametrize("kind", ["random", "ties", "useless", "negative", "copies"])
@pytest.mark.parametrize("k", [1, 5, 40])
def test_hundreds_of_keypoints(kind, k):
    # Long rows and columns take a shorter way to their best ones.
    rng = np.random.default_rng(5)
    x0, x1 = rng.normal(size=(700, 12)), rng.normal(size=(530, 12))
    if kind in ("ties", "useless"):
        x0, x1 = np.round(x0), np.round(x1)
    if kind == "useless":
        x0[::7], x1[::5] = 0, np.nan
    if kind == "negative":
        x0, x1 = np.abs(x0), -np.abs(x1)
        x1[::5] = 0
    if kind == "copies":
        x0, x1 = np.repeat(x0[:5], 140, axis=0), np.repeat(x1[:6], 88, axis=0)
    for operator in ("mutual", "oneway", "union"):
        expected = oracle.associate_by_sorting(x0, x1, k, operator)
        got = associate(x0, x1, k, operator)
        assert all(np.array_equal(a, b) for a, b in zip(got, expected, strict=True))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.longdouble, np.int8])
def test_any_number_type(dtype):
    rng = np.random.default_rng(1)
    x0, x1 = (rng.integers(0, 100, (20, 9)).astype(dtype) for _ in range(2))
    expected = associate(x0.astype(np.float64), x1.astype(np.float64))
    for got, want in zip(associate(x0, x1), expected, strict=True):
        assert np.array_equal(got, want)


# Bytes of BRIEF, ORB, AKAZE and FREAK; one byte has many ties.
@pytest.mark.parametrize("width", [1, 16, 32, 61, 64])
@pytest.mark.parametrize("operator", OPERATORS)
def test_bytes_are_binary_descriptors_compared_by_hamming_distance(width, operator):
    rng = np.random.default_rng(width)
    x0 = rng.integers(0, 256, (60, width), dtype=np.uint8)
    x1 = np.concatenate([x0[::2] ^ (rng.random((30, width)) < 0.2), rng.permutation(x0)[:20]])
    x1 = x1.astype(np.uint8)
    result = associate(x0, x1, 4, operator)
    expected = oracle.associate(x0, x1, 4, operator, similarity_of=oracle.hamming_similarities)
    assert (pairs(result), result[1].tolist(), result[2].tolist()) == expected
    as_signs = (2.0 * np.unpackbits(x, axis=1) - 1.0 for x in (x0, x1))
    assert associate(*as_signs, 4, operator)[1] == pytest.approx(result[1], abs=1e-6)
    torch = pytest.importorskip("torch")
    again = associate(torch.from_numpy(x0), torch.from_numpy(x1), 4, operator)
    owned = associate_owned(x0, np.arange(60), x1, np.arange(50), 4, operator)
    for other in (again, owned):
        assert all(np.array_equal(a, b) for a, b in zip(other, result, strict=True))


def test_bytes_of_sift_are_numbers_and_bits_do_not_mix_with_numbers():
    rng = np.random.default_rng(2)
    x0, x1 = (rng.integers(0, 200, (30, 128), dtype=np.uint8) for _ in range(2))
    expected = associate(x0.astype(np.float32), x1.astype(np.float64))
    for one in (x1, x1.astype(np.float32)):
        got = associate(x0, one)
        assert all(np.array_equal(a, b) for a, b in zip(got, expected, strict=True))
    with pytest.raises(ValueError, match=r"packed bits \(uint8\) .*, got uint8 and float32"):
        associate(x0[:, :32], x1[:, :32].astype(np.float32))
    assert pairs(associate(x0[:, :32], [])) == []


@pytest.mark.parametrize("scale", [1e-9, 1e30, 1e200, 1e307])
def test_size_of_descriptors_does_not_matter_above_the_floor(synthetic, scale):
    x0, x1 = (x[:50, :16] for x in synthetic)
    expected = associate(x0, x1)
    got = associate(x0 * scale, x1)
    # |x| = 1e-14 is divided by 1e-12; what underflows has no edges.
    assert associate([[1e-14, 0.0]], [[1.0, 0.0]])[1].tolist() == [np.float32(0.01)]
    for size in (1e-200, 5e-324):
        assert pairs(associate([[size, size], [1.0, 0.0]], [[1.0, 0.5]])) == [(1, 0)]
    assert pairs(got) == pairs(expected)
    assert got[1] == pytest.approx(expected[1], abs=1e-6)


def test_arrays_in_any_layout(synthetic):
    x0, x1 = synthetic
    copies = x0.copy(), x1.copy()
    expected = pairs(associate(x0, x1))
    assert np.array_equal(x0, copies[0])
    assert np.array_equal(x1, copies[1])
    assert pairs(associate(np.asfortranarray(x0), x1)) == expected
    assert pairs(associate(np.repeat(x0, 2, axis=1)[:, ::2], x1.tolist())) == expected


@pytest.mark.parametrize(
    ("shape0", "shape1"), [((0, 4), (3, 4)), ((3, 4), (0, 4)), ((0, 4), (0, 4)), ((0, 0), (3, 4))]
)
@pytest.mark.parametrize("operator", ["mutual", "oneway", "union"])
def test_no_keypoints(shape0, shape1, operator):
    edges, similarity, rank = associate(np.ones(shape0), np.ones(shape1), 3, operator)
    assert edges.shape == (0, 2)
    assert similarity.shape == rank.shape == (0,)


@pytest.mark.parametrize("isa", _core.instruction_sets())
def test_every_instruction_set_gives_the_same(synthetic, isa):
    x0, x1 = synthetic
    owners = np.arange(len(x0)) // 2, np.arange(len(x1)) // 3

    def run():
        return *associate(x0, x1, 7, "union"), *associate_owned(x0, owners[0], x1, owners[1], 4)

    expected = run()
    _core.force_instruction_set(isa)
    try:
        got = run()
    finally:
        _core.force_instruction_set(None)
    assert all(np.array_equal(a, b) for a, b in zip(got, expected, strict=True))


@pytest.mark.parametrize("threads", ["1", "2"])
@pytest.mark.parametrize("isa", ["", "baseline"])
def test_environment_does_not_matter(tmp_path, threads, isa):
    code = (
        "import sys, numpy as np\n"
        "from manymatch import associate\n"
        "rng = np.random.default_rng(0)\n"
        "x0 = rng.normal(size=(900, 700))\n"
        "x1 = x0[::-1] + rng.normal(size=x0.shape)\n"
        "np.savez(sys.argv[1], *associate(x0, x1, 5, 'union'))"
    )
    results = []
    for name, changes in (
        ("a.npz", {"OPENBLAS_NUM_THREADS": "1"}),
        ("b.npz", {"OPENBLAS_NUM_THREADS": threads, "MANYMATCH_ISA": isa}),
    ):
        environment = os.environ | {key: value for key, value in changes.items() if value}
        command = [sys.executable, "-c", code, str(tmp_path / name)]
        subprocess.run(command, check=True, env=environment)  # noqa: S603
        with np.load(tmp_path / name) as file:
            results.append([file[key] for key in file.files])
    assert all(np.array_equal(a, b) for a, b in zip(*results, strict=True))


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        *(
            ({"desc0": bad}, "desc0 must be an .N, D. array of numbers")
            for bad in (
                *(np.ones(3), np.ones((2, 3, 4)), np.ones((3, 0)), [["a", "b"]], None),
                *([[1.0], [2.0, 3.0]], np.ones((3, 4), dtype=bool), np.ones((3, 4), dtype=complex)),
                np.ma.masked_equal(np.eye(4), 0),
            )
        ),
        ({"desc1": np.ones((3, 5))}, "desc1 must have the dimension of desc0, 4"),
        ({"k": 0}, "k must be an integer of at least 1, got 0"),
        *(({"k": bad}, "k must be an integer") for bad in (2.5, True)),
        ({"operator": "mutal"}, "operator must be one of .*did you mean 'mutual'"),
        *(({"operator": bad}, "operator must be one of") for bad in (None, ["mutual"])),
        ({"max_edges": -1}, "max_edges must be an integer of at least 0, got -1"),
        ({"max_edges": 1.0}, "max_edges must be an integer"),
    ],
)
def test_bad_input(arguments, text):
    good = {"desc0": np.ones((3, 4)), "desc1": np.ones((3, 4))}
    with pytest.raises(ValueError, match=text):
        associate(**(good | arguments))


COUNT, DIMENSION, K = 16_384, 64, 5

MEASURE_PEAK = """
import sys
from pathlib import Path
import numpy as np
from manymatch.associate.neighbours import associate

def peak():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM"))

count, dimension, k = map(int, sys.argv[1:])
rng = np.random.default_rng(0)
x0 = rng.standard_normal((count, dimension), dtype=np.float32)
x1 = rng.standard_normal((count, dimension), dtype=np.float32)
# What Python and the allocator keep for themselves comes with the first call.
associate(x0[:1024], x1[:1024], k)
before = peak()
edges, similarity, rank = associate(x0, x1, k)
print(peak() - before, len(edges), int(rank.max()))
"""


@pytest.mark.skipif(
    not Path("/proc/self/status").is_file(), reason="the system does not tell the peak memory"
)
def test_peak_memory_is_as_documented():
    command = [sys.executable, "-c", MEASURE_PEAK, str(COUNT), str(DIMENSION), str(K)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603
    growth, edges, largest = map(int, done.stdout.split())
    assert edges > COUNT / 4
    assert largest == K
    both = 2 * COUNT
    documented = 6 * DIMENSION * both + 16 * 2**20 + (64 * K + 80) * both
    output = (16 + 4 + 4) * edges
    # Freed memory that the allocator still holds comes on top; the full product would be 1 GiB.
    assert growth < documented + output + 16 * 2**20
    assert documented < 4 * COUNT * COUNT / 20


relaxed = settings(max_examples=150)
operators = st.sampled_from(OPERATORS)


@st.composite
def tied(draw, special=True):
    """Draw descriptors of few small integers, so that similarities tie everywhere."""
    dimension = draw(st.integers(1, 4))
    entries = [-1.0, 0.0, 1.0, 2.0]
    if special:
        entries += [np.nan, np.inf]
    row = st.lists(st.sampled_from(entries), min_size=dimension, max_size=dimension)
    images = []
    for _ in range(2):
        rows = draw(st.lists(row, max_size=draw(st.sampled_from([1, 3, 12, 40]))))
        images.append(np.array(rows, dtype=np.float64).reshape(len(rows), dimension))
    return images


@st.composite
def random(draw):
    """Draw descriptors without ties, of any float type."""
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    count0, count1 = draw(st.integers(1, 60)), draw(st.integers(1, 60))
    dimension = draw(st.integers(2, 50))
    dtype = draw(st.sampled_from([np.float16, np.float32, np.float64]))
    scale = draw(st.sampled_from([1e-3, 1.0, 1e3]))
    base = rng.normal(size=(count0, dimension))
    noisy = base[rng.integers(0, count0, count1)] + rng.normal(size=(count1, dimension))
    return [(scale * base).astype(dtype), (scale * noisy).astype(dtype)]


def as_lists(result):
    edges, similarity, rank = result
    assert edges.dtype == np.int64
    assert edges.shape == (len(edges), 2)
    assert similarity.dtype == np.float32
    assert rank.dtype == np.int32
    return [tuple(e) for e in edges.tolist()], similarity.tolist(), rank.tolist()


@relaxed
@given(tied() | random(), st.integers(1, 50), operators)
def test_equals_the_twin(images, k, operator):
    assert as_lists(associate(*images, k, operator)) == oracle.associate(*images, k, operator)


@relaxed
@given(tied() | random(), st.integers(1, 12), operators, st.integers(0, 40))
def test_cap_is_a_prefix_and_graphs_are_nested_by_rank(images, k, operator, cap):
    edges, similarity, rank = associate(*images, 12, operator)
    capped = associate(*images, 12, operator, max_edges=cap)
    assert as_lists(capped) == as_lists((edges[:cap], similarity[:cap], rank[:cap]))
    kept = rank <= k
    nested = as_lists((edges[kept], similarity[kept], rank[kept]))
    assert as_lists(associate(*images, k, operator)) == nested


@relaxed
@given(tied() | random(), operators, st.integers(1, 8), st.integers(2, 3))
def test_threads_do_not_matter(images, operator, k, threads):
    expected = as_lists(associate(*images, k, operator))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(neighbours, "_MIN_ENTRIES_TO_SHARE", 0)
        patch.setattr(neighbours, "_num_threads", lambda: threads)
        assert as_lists(associate(*images, k, operator)) == expected


def slow_owned(desc0, owners0, desc1, owners1, k, operator):
    """The whole matrix of best similarities, ranked by sorting."""
    n0, n1 = owners0.max() + 1, owners1.max() + 1
    all_rows, cosine, _ = associate(desc0, desc1, max(len(desc0), len(desc1)), "union")
    best = {}
    for (a, b), s in zip(all_rows.tolist(), cosine.tolist(), strict=True):
        pair = (owners0[a], owners1[b])
        best[pair] = max(best.get(pair, -2.0), s)
    row = {i: sorted((-best[i, j], j) for j in range(n1) if (i, j) in best) for i in range(n0)}
    column = {j: sorted((-best[i, j], i) for i in range(n0) if (i, j) in best) for j in range(n1)}
    found = []
    for (i, j), s in best.items():
        ranks = row[i].index((-s, j)) + 1, column[j].index((-s, i)) + 1
        rank = {"mutual": max(ranks), "union": min(ranks), "oneway": ranks[0]}[operator]
        if rank <= k:
            found.append((rank, -s, i, j))
    return sorted(found)


@settings(max_examples=80)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 14),
    st.integers(1, 14),
    st.integers(1, 4),
    st.sampled_from(OPERATORS),
    st.booleans(),
)
def test_owned_equals_the_slow_twin(seed, m0, m1, k, operator, coarse):
    rng = np.random.default_rng(seed)
    # Coarse descriptors tie often.
    draw = (
        (lambda n: rng.integers(-1, 2, (n, 3))) if coarse else (lambda n: rng.normal(size=(n, 3)))
    )
    desc0, desc1 = draw(m0).astype(np.float32), draw(m1).astype(np.float32)
    owners0, owners1 = rng.integers(0, max(1, m0 // 2), m0), rng.integers(0, max(1, m1 // 2), m1)
    edges, similarity, rank = associate_owned(desc0, owners0, desc1, owners1, k, operator)
    found = [
        (r, -s, i, j)
        for r, s, (i, j) in zip(rank.tolist(), similarity.tolist(), edges.tolist(), strict=True)
    ]
    assert found == slow_owned(desc0, owners0, desc1, owners1, k, operator)


@pytest.mark.parametrize("kind", ["random", "ties", "useless", "one owner", "gaps"])
@pytest.mark.parametrize("threads", [1, 2, 8])
def test_owned_by_thousands_of_descriptors(monkeypatch, kind, threads):
    # More keypoints than fit into a part of the columns, and several groups of rows.
    rng = np.random.default_rng(8)
    x0, x1 = rng.normal(size=(560, 9)), rng.normal(size=(2600, 9))
    owners0 = np.concatenate([np.arange(430), rng.integers(0, 430, 130)])
    owners1 = rng.permutation(np.concatenate([np.arange(2150), rng.integers(0, 2150, 450)]))
    if kind in ("ties", "useless"):
        x0, x1 = np.round(x0), np.round(x1)
    if kind == "useless":
        x0[::7], x1[::5] = 0, np.nan
    if kind == "one owner":
        owners0[100:], owners1[:900] = 3, 5
    if kind == "gaps":
        owners1 *= 3
    monkeypatch.setattr(neighbours, "_num_threads", lambda: threads)
    for k, operator in ((1, "mutual"), (5, "mutual"), (3, "union"), (40, "oneway")):
        expected = oracle.associate_by_sorting(x0, x1, k, operator, owners0, owners1)
        got = associate_owned(x0, owners0, x1, owners1, k, operator)
        assert all(np.array_equal(a, b) for a, b in zip(got, expected, strict=True))


@pytest.mark.parametrize("operator", OPERATORS)
def test_one_descriptor_each_is_plain_association(operator):
    rng = np.random.default_rng(0)
    desc0, desc1 = rng.normal(size=(60, 8)), rng.normal(size=(50, 8))
    owned = associate_owned(desc0, np.arange(60), desc1, np.arange(50), 4, operator)
    for ours, plain in zip(owned, associate(desc0, desc1, 4, operator), strict=True):
        assert np.array_equal(ours, plain)
        assert ours.dtype == plain.dtype
    empty = associate_owned(np.zeros((0, 4)), [], np.ones((3, 4)), [0, 1, 1], 5, operator)
    assert [array.shape for array in empty] == [(0, 2), (0,), (0,)]
    desc, owners = np.eye(3), [0, 1, 2]
    for bad0, bad1, message in (
        ([0, 1], owners, r"^owners0 must be one keypoint per row of desc0"),
        (owners, [0, -1, 2], r"^owners1 must hold numbers of keypoints"),
    ):
        with pytest.raises(ValueError, match=message):
            associate_owned(desc, bad0, desc, bad1, 5, operator)


@pytest.mark.data
def test_sift_graphs_are_those_of_the_reference():
    """Orientations of one place as one vertex: the graph of 5 mutual neighbours of real images."""
    cv2 = pytest.importorskip("cv2")
    folder = data_folder()
    if folder is None:
        pytest.skip("no reference data here, see MANYMATCH_DATA")
    graph = np.load(folder / "graphs" / "sift" / "kitti_vo" / "0000.npz")
    rows, owners = [], []
    for k in "01":
        image = cv2.imread(str(folder / "posed_pairs" / "kitti_vo" / str(graph[f"name{k}"])))
        small = cv2.resize(image, graph[f"size{k}"].tolist(), interpolation=cv2.INTER_AREA)
        found = load_detector("sift", border=0).detect(np.ascontiguousarray(small[:, :, ::-1]))
        rows.append(np.concatenate([found.descriptors, found.further]))
        owners.append(np.concatenate([np.arange(len(found)), found.owners]))
    edges, _, _ = associate_owned(rows[0], owners[0], rows[1], owners[1], 5)
    ours, theirs = ({tuple(e) for e in given.tolist()} for given in (edges, graph["edges"]))
    # The reference rounds similarities, which changes the order of a few near ties.
    assert len(ours ^ theirs) <= 0.002 * len(theirs)
