"""What a run found, read back from its folder."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

import numpy as np

from manymatch._files import as_path, read_bytes, unreadable, write_whole
from manymatch._validate import FloatArray, refusal
from manymatch.evaluate.statistics import THRESHOLDS, auc_spread
from manymatch.runs.journal import NAME
from manymatch.runs.tables import require_pyarrow, write_csv, write_parquet

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

#: Columns of the tables, one row per pair and repetition; any may be empty.
COLUMNS: dict[str, type] = {
    "index": int,
    "name0": str,
    "name1": str,
    "scene": str,
    "bin": str,
    "repetition": int,
    "seed": int,
    "success": bool,
    "error_deg": float,
    "rotation_deg": float,
    "translation_deg": float,
    "failure": str,
    "num_edges": int,
    "num_inliers": int,
    "cardinality": int,
    "hcm": float,
    "iterations": int,
    "seconds": float,
    "probe_hcm": float,
    "pool_full": bool,
    "pool_worst": float,
    "enters": bool,
}

_WANT = "the folder of a finished run"


@dataclasses.dataclass(frozen=True, eq=False)
class RunResult:
    """Trials of one configuration on one set.

    Attributes
    ----------
    folder : Path
        Where the run is.
    header : dict
        What was computed: ``title``, ``source``, ``config`` and versions.
    records : list of dict
        One per pair, by index, each with its ``trials``.
    """

    folder: Path
    header: dict[str, Any]
    records: list[dict[str, Any]]

    @classmethod
    def load(cls, folder: object, limit: int | None = None) -> RunResult:
        """Read a run from its folder, or the first pairs of it.

        Raises
        ------
        ValueError
            If there is no run in the folder, or none of its pairs is finished.
        """
        place = as_path(folder, "run")
        path = place / NAME
        if not path.is_file():
            raise refusal("run", _WANT, str(place))
        records: dict[int, dict[str, Any]] = {}
        lines = read_bytes(path, _WANT).split(b"\n")
        try:
            header = json.loads(lines[0])
            # What follows the last end of a line was torn, and never counted.
            for line in lines[1:-1]:
                record = json.loads(line)
                if limit is None or record["index"] < limit:
                    records[record["index"]] = record
        except (ValueError, KeyError, TypeError) as error:
            raise unreadable(path, _WANT, str(error)) from error
        if not isinstance(header, dict) or "config" not in header or "source" not in header:
            raise unreadable(path, _WANT, "its first line is no header of an evaluation")
        return cls(place, header, [records[index] for index in sorted(records)])

    def __len__(self) -> int:
        return len(self.records)

    @property
    def indices(self) -> list[int]:
        """Numbers of the finished pairs in their set, from 0."""
        return [record["index"] for record in self.records]

    @property
    def names(self) -> list[tuple[str, str]]:
        """The two images of each pair."""
        return [(record["name0"], record["name1"]) for record in self.records]

    @property
    def scenes(self) -> list[str]:
        """The scene of each pair."""
        return [record["scene"] for record in self.records]

    @property
    def bins(self) -> list[str]:
        """The bin of each pair; empty texts where the set has none."""
        return [record["bin"] for record in self.records]

    @property
    def num_edges(self) -> FloatArray:
        """Candidates that the estimator got, (N,)."""
        return np.array([record["num_edges"] for record in self.records], dtype=np.float64)

    @property
    def errors(self) -> FloatArray:
        """Pose errors in degrees, (S, N): repetitions by pairs."""
        return self.column("error_deg")

    def column(self, name: str) -> FloatArray:
        """One number of every trial, (S, N); NaN where a trial does not have it."""
        values = [
            [np.nan if t.get(name) is None else float(t[name]) for t in record["trials"]]
            for record in self.records
        ]
        seeds = self.header["config"]["seeds"]
        return np.array(values, dtype=np.float64).reshape(len(self.records), seeds).T

    def rows(self) -> Iterator[dict[str, Any]]:
        """Go through all trials as flat rows of a table."""
        for record in self.records:
            shared = {k: v for k, v in record.items() if k not in ("trials", "error")}
            for repetition, row in enumerate(record["trials"]):
                yield {**shared, "repetition": repetition, **row}

    def write_tables(self) -> list[Path]:
        """Write ``pairs.parquet``, or ``pairs.csv`` without pyarrow, and ``summary.json``."""
        try:
            require_pyarrow()
        except ModuleNotFoundError:
            files = [self.folder / "pairs.csv"]
            write_csv(files[0], COLUMNS, self.rows)
        else:
            files = [self.folder / "pairs.parquet"]
            write_parquet(files[0], COLUMNS, self.rows, self.header)
        text = json.dumps({**self.header, **self.summary()}, indent=2, allow_nan=False)
        path = self.folder / "summary.json"
        write_whole(path, lambda file: file.write(f"{text}\n".encode()))
        return [*files, path]

    def summary(self) -> dict[str, Any]:
        """Return the AUC of all pairs and of every bin, times and failures, as plain values."""
        if not self.records:
            return {"pairs": 0}
        errors = self.errors
        success = self.column("success") > 0
        by_bin = {}
        for name in dict.fromkeys(filter(None, self.bins)):
            kept = np.array([other == name for other in self.bins])
            by_bin[name] = {"pairs": int(kept.sum()), **auc_spread(errors[:, kept]).to_dict()}
        seconds = self.column("seconds")
        known = np.isfinite(seconds)
        return {
            "pairs": len(self.records),
            "thresholds_deg": list(THRESHOLDS),
            "auc": auc_spread(errors).to_dict(),
            "bins": by_bin,
            "failed_trials": int((~success).sum()),
            "unreadable_pairs": sum("error" in record for record in self.records),
            "median_error_deg": float(np.median(errors)),
            "median_edges": float(np.median(self.num_edges)),
            "mean_seconds": float(seconds[known].mean()) if known.any() else None,
        }
