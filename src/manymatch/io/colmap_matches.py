"""Keypoints and matches for COLMAP: text files that it imports, and its database."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from manymatch._validate import FloatArray, require
from manymatch.geometry.camera import COLMAP_PIXEL_CENTRE, Camera
from manymatch.io import files
from manymatch.io.files import PathLike
from manymatch.io.matches import ImageRecord, PairMatches, PairWriter, image_name

# COLMAP takes no other length of descriptors than SIFT's; imported matches do not use them.
_DESCRIPTOR_SIZE = 128
_MATCHES = "matches.txt"
DATABASE = "a COLMAP database"
#: What every file of SQLite begins with.
MAGIC = b"SQLite format 3\0"
# Beside an open database SQLite has files of these endings.
_SIDE_FILES = ("-wal", "-shm", "-journal")
# The model that COLMAP itself takes for photographs of unknown cameras: it can refine distortion.
_UNCALIBRATED = {"SIMPLE_PINHOLE": "SIMPLE_RADIAL"}


class ColmapWriter(PairWriter):
    """Writes keypoints and matches of any number of pairs as text that COLMAP imports.

    ``matches.txt`` is for ``colmap matches_importer --match_type raw``, and ``<name>.txt``, once
    per image, for ``colmap feature_importer``, with scale 1, orientation and descriptor 0. Pixels
    are COLMAP's, of the image as it is stored. COLMAP splits lines at spaces, so names have none.
    The argument is an existing folder; folders in names are made.

    Examples
    --------
    >>> with ColmapWriter("out") as writer:                           # doctest: +SKIP
    ...     writer.add("a.jpg", "b.jpg", PairMatches(keypoints0, keypoints1, matches))
    """

    def __init__(self, folder: PathLike) -> None:
        super().__init__()
        self._folder = files.as_folder(folder, output=True)
        self.files = {"colmap": self._folder / _MATCHES}

    def _open(self, stack: contextlib.ExitStack) -> None:
        temporary = stack.enter_context(files.whole_file(self.files["colmap"]))
        self._file = stack.enter_context(temporary.open("xb"))

    def _add_image(self, image: ImageRecord, points: FloatArray) -> None:
        rest = " 1 0" + " 0" * _DESCRIPTOR_SIZE
        lines = [f"{len(points)} {_DESCRIPTOR_SIZE}"]
        lines += [f"{x!r} {y!r}{rest}" for x, y in (points + COLMAP_PIXEL_CENTRE).tolist()]
        target = self._folder / f"{image.name}.txt"
        target.parent.mkdir(parents=True, exist_ok=True)
        files.write_text(target, "\n".join(lines) + "\n")

    def _add_pair(self, image0: ImageRecord, image1: ImageRecord, pair: PairMatches) -> None:
        lines = [f"{image0.name} {image1.name}"]
        lines += [f"{i} {j}" for i, j in pair.matches.tolist()]
        self._file.write("\n".join([*lines, "", ""]).encode("utf-8"))

    @staticmethod
    def check_name(name: str, argument: str) -> str:
        """Check the name of an image: COLMAP splits lines at spaces, and matches.txt is taken."""
        want = ""
        if len(image_name(name, argument).split()) != 1 or name != name.strip():
            want = "have no spaces, which COLMAP splits at"
        elif any(len(os.fsencode(part)) > files.LONGEST_NAME for part in f"{name}.txt".split("/")):
            want = f"leave room for .txt in a file name of {files.LONGEST_NAME} bytes"
        elif f"{name}.txt" == _MATCHES:
            want = f"leave the file {_MATCHES} to the matches"
        if want:
            raise ValueError(f"{argument} must {want}, got {name!r}")
        return name


class ColmapDatabaseWriter(PairWriter):
    """Writes any number of pairs as a database from which COLMAP's mappers make a model.

    Keypoints, cameras and poses are for the image as it is stored, with COLMAP's half pixel. Images
    of equal cameras share one. A focal length that is not known but found is marked as one without
    prior, which mappers refine, and the camera is that of one image, or of those with the same name
    of the camera.

    A pair with a pose has a two-view geometry with the pose, E, F (without distortion) and the
    matches as inliers: *calibrated*, or *uncalibrated* where a focal length is not known. A pair
    without pose, or of which only one image is stored mirrored, is marked as degenerate, which
    mappers pass over. The argument is the file, in an existing folder.

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
        stack.push(lambda kind, *_: None if kind else self._check_complete(temporary))
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

    def _check_complete(self, file: Path) -> None:
        """Check that a closed database is one file, as SQLite does not report its last writes."""
        for end in _SIDE_FILES:
            side = file.with_name(file.name + end)
            if side.exists() and side.stat().st_size:
                raise OSError(errno.EIO, "the database could not be completed", str(self._path))

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
