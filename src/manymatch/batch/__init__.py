"""Many pairs: batches of image pairs, made of parts."""

from typing import Literal, TypeAlias, get_args

#: Which images of a run share an unknown focal length: those of a pair ("pair"), an image in all of
#: its pairs ("image"), images of one size in a folder ("folder"), all images of one size ("all").
CameraPer: TypeAlias = Literal["pair", "image", "folder", "all"]
CAMERA_PER: tuple[str, ...] = get_args(CameraPer)

#: Where a batch can be worked on.
ENGINES = ("local", "ray")
