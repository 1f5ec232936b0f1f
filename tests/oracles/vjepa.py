"""V-JEPA 2.1 for one frame, slowly: complex numbers, one query and one head at a time."""

import math

import numpy as np

HEAD, TURNING = 64, 20


def turned(vector, row, column, rows, columns):
    """Rotate a head's 64 channels at a place of the grid."""
    place = {
        1: row * 15.0 / (rows - 1) if rows > 1 else 0.0,
        2: column * 15.0 / (columns - 1) if columns > 1 else 0.0,
    }
    out = vector.astype(np.float64).copy()
    for axis, position in place.items():
        for i in range(TURNING // 2):
            k = axis * TURNING + 2 * i
            pair = complex(vector[k], vector[k + 1])
            pair *= np.exp(1j * position * 10000.0 ** (-i / 10))
            out[k], out[k + 1] = pair.real, pair.imag
    return out


def normed(x, weight, bias):
    mean, variance = x.mean(axis=-1, keepdims=True), x.var(axis=-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + 1e-6) * weight + bias


def gelu(x):
    return x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def encode(state, image, depth):
    """Outputs of all blocks, un-normed: a list of (rows, columns, dim) arrays."""
    w = {name: value.double().numpy() for name, value in state.items()}
    rows, columns = image.shape[1] // 16, image.shape[2] // 16
    kernel = w["patch_embed_img.proj.weight"][:, :, 0]
    x = np.empty((rows * columns, len(kernel)))
    for token in range(rows * columns):
        r, c = divmod(token, columns)
        patch = image[:, 16 * r : 16 * r + 16, 16 * c : 16 * c + 16]
        x[token] = (kernel * patch).sum(axis=(1, 2, 3)) + w["patch_embed_img.proj.bias"]
    x += w["img_mod_embed"][0, 0]
    outputs = []
    for k in range(depth):
        name = f"blocks.{k}."

        def get(key, name=name):
            return w[name + key + ".weight"], w[name + key + ".bias"]

        x = x + attention(normed(x, *get("norm1")), get, rows, columns)
        (first, first_bias), (second, second_bias) = get("mlp.fc1"), get("mlp.fc2")
        hidden = gelu(normed(x, *get("norm2")) @ first.T + first_bias)
        x = x + hidden @ second.T + second_bias
        outputs.append(x.reshape(rows, columns, -1))
    return outputs


def attention(x, get, rows, columns):
    dim = x.shape[1]
    weight, bias = get("attn.qkv")
    query, key, value = np.split(x @ weight.T + bias, 3, axis=1)
    mixed = np.empty_like(x)
    places = [divmod(token, columns) for token in range(len(x))]
    for start in range(0, dim, HEAD):
        head = slice(start, start + HEAD)
        q, k = (
            [turned(m[i, head], *place, rows, columns) for i, place in enumerate(places)]
            for m in (query, key)
        )
        for i in range(len(x)):
            logits = np.array([q[i] @ other for other in k]) / math.sqrt(HEAD)
            chance = np.exp(logits - logits.max())
            mixed[i, head] = (chance / chance.sum()) @ value[:, head]
    weight, bias = get("attn.proj")
    return mixed @ weight.T + bias
