"""COLMAP's database: keypoints, matches and poses for its mappers, and matches out of it."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from manymatch._validate import FloatArray, require
from manymatch.geometry.camera import COLMAP_PIXEL_CENTRE, Camera
from manymatch.io import files
from manymatch.io.files import PathLike
from manymatch.io.matches import ImageRecord, PairMatches, PairWriter, graph_from_matches

if TYPE_CHECKING:
    from manymatch.graph import AssociationGraph

DATABASE = "a COLMAP database"
#: What every file of SQLite begins with.
MAGIC = b"SQLite format 3\0"
#: Beside an open database SQLite has files of these endings.
SIDE_FILES = ("-wal", "-shm", "-journal")
# The model that COLMAP itself takes for photographs of unknown cameras: it can refine distortion.
_UNCALIBRATED = {"SIMPLE_PINHOLE": "SIMPLE_RADIAL"}
# Of COLMAP, which makes one number of two images, the smaller one first.
_MOST_IMAGES = 2147483647
# Of SQLite, for one question: more than two million images need, few enough to end soon.
_MOST_STEPS = 500_000_000


class ColmapDatabaseWriter(PairWriter):
    """Writes any number of pairs as a database from which COLMAP's mappers make a model.

    Per image it holds the keypoints and a frame of its own, in a rig that is nothing but the
    camera; COLMAP has the centre of the top-left pixel at (0.5, 0.5), so half a pixel is added.
    COLMAP reads images as they are stored and ignores EXIF: keypoints, cameras and poses are for
    the image as it is stored. Images of equal cameras share one. A focal length that is not known
    but found is marked as one without prior, which mappers refine, and the camera is that of one
    image, or of those with the same name of the camera.

    Per pair it holds the matches and, where the pair has a pose, the two-view geometry with the
    pose, E, F (without distortion) and the matches as inliers. Its configuration is *calibrated*,
    or *uncalibrated* where a focal length is not known. A pair without pose, or of which only one
    image is stored mirrored, is marked as degenerate, which mappers pass over. The argument is the
    file, in an existing folder.

    Examples
    --------
    >>> with ColmapDatabaseWriter("database.db") as writer:           # doctest: +SKIP
    ...     images = [ImageRecord(name, camera=camera) for name in ("a.jpg", "b.jpg")]
    ...     writer.add(*images, PairMatches(keypoints0, keypoints1, matches, pose=pose))
    """

    def __init__(self, path: PathLike) -> None:
        super().__init__()
        self._path = files.as_path(path)
        self.files = {"colmap-db": self._path}
        self._colmap = require_pycolmap()
        self._images: dict[str, tuple[int, Any]] = {}
        self._shown: dict[str, tuple[Camera | None, bool, int]] = {}
        self._cameras: dict[Any, Any] = {}

    def _open(self, stack: contextlib.ExitStack) -> None:
        temporary = stack.enter_context(files.whole_file(self._path))
        stack.enter_context(_closed(temporary, self._path))
        # Not in one transaction: pycolmap ends the process where that cannot be completed.
        with self._writing():
            self._database = self._colmap.Database.open(os.fspath(temporary))
        stack.callback(self._database.close)

    def _add_image(self, image: ImageRecord, points: FloatArray) -> None:
        camera = image.camera
        if camera is None or camera.width is None:
            want = "one with a size for COLMAP's database"
            raise ValueError(f"camera of {image.name!r} must be {want}, got {camera}")
        with self._writing():
            unknown = None if image.focal_known else image.camera_name or image.name
            own = self._camera(camera, unknown)
            number = len(self._images) + 1
            record = self._colmap.Image(name=image.name, camera_id=own.camera_id)
            record.image_id = number
            frame = self._colmap.Frame()
            frame.frame_id, frame.rig_id = number, own.camera_id
            frame.add_data_id(record.data_id)
            pixels = (points + COLMAP_PIXEL_CENTRE).astype(np.float32)
            self._database.write_image(record, use_image_id=True)
            self._database.write_frame(frame, use_frame_id=True)
            self._database.write_keypoints(number, pixels.reshape(-1, 2))
        self._images[image.name] = number, own

    def _camera(self, camera: Camera, found_of: str | None) -> Any:
        """Camera of the database; one that is equal, or of those found one of the same name."""
        values = camera.to_colmap()
        if values["model"] in _UNCALIBRATED:
            values["model"] = _UNCALIBRATED[values["model"]]
            values["params"] = [*values["params"], 0.0]
        key = (found_of, values["model"], camera.width, camera.height, *values["params"])
        if key not in self._cameras:
            number = len(self._cameras) + 1
            own = self._colmap.Camera(**values, camera_id=number)
            own.has_prior_focal_length = found_of is None
            rig = self._colmap.Rig()
            rig.rig_id = number
            rig.add_ref_sensor(own.sensor_id)
            self._database.write_camera(own, use_camera_id=True)
            self._database.write_rig(rig, use_rig_id=True)
            self._cameras[key] = own
        return self._cameras[key]

    def _add_pair(self, image0: ImageRecord, image1: ImageRecord, pair: PairMatches) -> None:
        for image in (image0, image1):
            shown = (image.camera, image.focal_known, image.orientation)
            if self._shown.setdefault(image.name, shown) != shown:
                given = f"{image.camera} after {self._shown[image.name][0]}"
                want = "the same in all pairs for COLMAP's database"
                raise ValueError(f"camera of {image.name!r} must be {want}, got {given}")
        (id0, camera0), (id1, camera1) = (self._images[i.name] for i in (image0, image1))
        matches = pair.matches.astype(np.uint32)
        kinds = self._colmap.TwoViewGeometryConfiguration
        geometry = self._colmap.TwoViewGeometry()
        geometry.config = kinds.DEGENERATE.value
        # COLMAP ignores EXIF, and there is no pose between a scene and its mirror image.
        if pair.pose is not None and image0.mirrored == image1.mirrored:
            R, t = image1.axes @ pair.pose.R @ image0.axes.T, image1.axes @ pair.pose.t
            pose = self._colmap.Rigid3d(self._colmap.Rotation3d(R), t)
            known = image0.focal_known and image1.focal_known
            geometry.config = (kinds.CALIBRATED if known else kinds.UNCALIBRATED).value
            geometry.cam2_from_cam1 = pose
            geometry.E = E = self._colmap.essential_matrix_from_pose(pose)
            if camera0.is_undistorted() and camera1.is_undistorted():
                if pair.cameras is not None:
                    camera0, camera1 = (
                        self._colmap.Camera(**camera.turned(image.axes[:2, :2]).to_colmap())
                        for camera, image in zip(pair.cameras, (image0, image1), strict=True)
                    )
                K0, K1 = (np.linalg.inv(c.calibration_matrix()) for c in (camera0, camera1))
                F = K1.T @ E @ K0
                geometry.F = F / np.linalg.norm(F)
            geometry.inlier_matches = matches
        with self._writing():
            self._database.write_matches(id0, id1, matches)
            self._database.write_two_view_geometry(id0, id1, geometry)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """Turn what SQLite reports into an error of the file."""
        try:
            yield
        except RuntimeError as error:
            raise OSError(errno.EIO, str(error), str(self._path)) from error


def require_pycolmap() -> Any:
    """Import pycolmap of a version that has rigs and frames, or say how to get it."""
    pycolmap = require("pycolmap", "writing COLMAP's database", "colmap")
    if not hasattr(pycolmap.Database, "write_frame"):
        raise ImportError(
            "writing COLMAP's database needs pycolmap 4 or later, got "
            f'{pycolmap.__version__}: pip install "manymatch[colmap]"'
        )
    return pycolmap


@contextlib.contextmanager
def _closed(temporary: Path, path: Path) -> Iterator[None]:
    """Check that a closed database is one complete file; remove SQLite's files beside it."""
    sides = [temporary.with_name(temporary.name + end) for end in SIDE_FILES]
    try:
        yield
        if any(side.exists() and side.stat().st_size for side in sides):
            # SQLite does not report a failed write at the end; it leaves the data in a side file.
            raise OSError(errno.EIO, "the database could not be completed", str(path))
    finally:
        for side in sides:
            side.unlink(missing_ok=True)


def read_colmap_database(path: PathLike, name0: str, name1: str) -> AssociationGraph:
    """Read the matches of one pair of images from a database of any version of COLMAP.

    The names are paths below the folder of images; the pair may be stored in either order. The
    matches are those before geometric verification, in the order of the file, without similarity.
    The keypoints are pixels of the images as they are stored (EXIF is ignored), with the centre of
    the top-left one at (0, 0).
    """
    import sqlite3

    source = files.local_path(path)
    with files.reading(source, DATABASE, ValueError, OSError, sqlite3.Error, OverflowError):
        with files.open_regular(source) as file:
            if file.read(len(MAGIC)) != MAGIC:
                raise ValueError("it is not a file of SQLite")
            size = os.fstat(file.fileno()).st_size
        # Without a file beside it nothing is missing, and nothing has to be written to read it.
        log = source.with_name(source.name + SIDE_FILES[0])
        beside = log.exists()
        size += log.stat().st_size if beside else 0
        uri = f"{source.absolute().as_uri()}?mode=ro{'' if beside else '&immutable=1'}"
        with contextlib.closing(sqlite3.connect(uri, uri=True)) as connection:
            # A computed column may have any size; a stored one is not longer than the file.
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, min(size, 2**31 - 1))
            connection.set_progress_handler(lambda: 1, _MOST_STEPS)
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.text_factory = bytes
            try:
                return _read_pair(connection, name0, name1)
            except (sqlite3.Error, MemoryError) as error:
                # SQLite's message may quote any characters of the file, or be empty.
                said = str(error) or "out of memory"
                raise ValueError(f"SQLite says {said!r:.200}") from error


def _read_pair(connection: Any, name0: str, name1: str) -> AssociationGraph:
    numbers, points = [], []
    for name in (name0, name1):
        number = _row(connection, "images", "image_id", "name", name)
        if number is None or not isinstance(number[0], int) or not 0 < number[0] < _MOST_IMAGES:
            raise ValueError(f"it has no image {name!r:.80}")
        numbers.append(number[0])
        found = _matrix(connection, "keypoints", "image_id", number[0], "<f4")
        with np.errstate(invalid="ignore"):
            pixels = np.zeros((0, 2)) if found is None else found[:, :2] - COLMAP_PIXEL_CENTRE
        points.append(pixels)
    first, second = sorted(numbers)
    key = _MOST_IMAGES * first + second
    matches = _matrix(connection, "matches", "pair_id", key, "<u4")
    if matches is None or first == second:
        raise ValueError(f"it has no pair {name0!r:.80}, {name1!r:.80}")
    ordered = matches[:, :2] if numbers == [first, second] else matches[:, 1::-1]
    return graph_from_matches(points[0], points[1], ordered.astype(np.int64))


def _row(connection: Any, table: str, columns: str, key: str, value: object) -> Any:
    """Read the first row with a value of a table; a view, which may run any query, is refused."""
    kind = connection.execute("SELECT type FROM sqlite_master WHERE name = ?", (table,)).fetchone()
    if kind != (b"table",):
        raise ValueError(f"it has no table of {table}")
    query = f"SELECT {columns} FROM {table} WHERE {key} = ?"  # noqa: S608 - names of our own
    return connection.execute(query, (value,)).fetchone()


def _matrix(connection: Any, table: str, key: str, value: int, dtype: str) -> NDArray[Any] | None:
    """Read a matrix of at least two columns; None if its row is missing."""
    row = _row(connection, table, "rows, cols, data", key, value)
    if row is None:
        return None
    rows, columns, data = row
    data = b"" if data is None else data
    sizes = isinstance(rows, int) and isinstance(columns, int) and isinstance(data, bytes)
    if not sizes or rows < 0 or (rows and columns < 2) or rows * columns * 4 != len(data):
        raise ValueError(f"its {table} do not have the size that it declares")
    files.check_size(rows * columns, f"its {table}")
    return np.frombuffer(data, dtype).reshape(rows, columns) if rows else np.zeros((0, 2), dtype)
