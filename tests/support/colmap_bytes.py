"""Records of COLMAP's binary files, written from the description of the format."""

import struct


def binary_camera(camera_id=1, model_id=1, size=(640, 480), params=(500, 510, 320, 240)):
    return struct.pack(f"<IiQQ{len(params)}d", camera_id, model_id, *size, *params)


def binary_image(name=b"a.jpg", pose=(1, 0, 0, 0, 0, 0, 1), camera_id=1, points=2):
    head = struct.pack("<I7dI", 5, *pose, camera_id) + name + b"\0"
    return head + struct.pack("<Q", points) + struct.pack("<ddQ", 1.0, 2.0, 3) * points


def counted(*records):
    return struct.pack("<Q", len(records)) + b"".join(records)
