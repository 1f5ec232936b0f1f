"""Synthetic results of runs for tests of tables and figures."""

import json
from pathlib import Path
from statistics import mean, stdev

from manymatch_lab.evaluate.run import RunResult


def spread(by_seed, interval=((-1.0, 1.0),) * 3):
    """What a run records of numbers by seed and threshold, computed with other means."""
    columns = list(zip(*by_seed, strict=True))
    return {
        "mean": [mean(column) for column in columns],
        "sd": [stdev(column) if len(column) > 1 else 0.0 for column in columns],
        "min": [min(column) for column in columns],
        "max": [max(column) for column in columns],
        "interval": [list(ends) for ends in interval],
    }


def flat(value):
    """The same number at every threshold, from one seed."""
    return spread([[value] * 3], ((value - 1.0, value + 1.0),) * 3)


def synthetic_result(errors, num_edges=(), **columns):
    """A run with the given errors and other numbers, seeds by pairs."""
    seeds, pairs = len(errors), len(errors[0])
    records = []
    for index in range(pairs):
        trials = [
            {"error_deg": errors[seed][index]}
            | {name: values[seed][index] for name, values in columns.items()}
            for seed in range(seeds)
        ]
        edges = num_edges[index] if num_edges else 0
        names = {"name0": "a", "name1": "b", "scene": "", "bin": ""}
        records.append({"index": index, **names, "num_edges": edges, "trials": trials})
    return RunResult(Path(), {"config": {"seeds": seeds}, "source": {}}, records)


def texts(table):
    return [[cell.text for cell in row] for row in table.cells()]


def as_json(data):
    """The data after a trip through JSON, as drawing again sees it."""
    return json.loads(json.dumps(data, allow_nan=False))


def settings(seeds=2, **more):
    """What a run records about itself."""
    options = {"min_iterations": 1000, "max_iterations": 2000, "threshold_px": 1.0}
    seen = {"k": 5, "max_edges": 2048, "gms": True, "keep": 1024}
    return {"seeds": seeds, "limit": None, "options": options, "association": seen, **more}
