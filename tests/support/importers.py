"""What hloc and COLMAP do with files that were written for them."""

import h5py
import numpy as np


def hloc_keypoints(features, name):
    """hloc fills COLMAP's database with these, half a pixel added."""
    with h5py.File(str(features), "r", libver="latest") as file:
        dataset = file[name]["keypoints"]
        points = dataset.__array__()
        assert dataset.attrs.get("uncertainty") is None
    return points


def hloc_matches(path, name0, name1):
    """Indices and scores as hloc finds them: either order, two ways of joining names."""

    def join(first, second, separator="/"):
        return separator.join((first.replace("/", "-"), second.replace("/", "-")))

    with h5py.File(str(path), "r", libver="latest") as file:
        for separator in "/_":
            for names, reverse in (((name0, name1), False), ((name1, name0), True)):
                pair = join(*names, separator)
                if pair in file:
                    matches = file[pair]["matches0"].__array__()
                    scores = file[pair]["matching_scores0"].__array__()
                    index = np.where(matches != -1)[0]
                    matches = np.stack([index, matches[index]], -1)
                    return np.flip(matches, -1) if reverse else matches, scores[index]
    raise ValueError(f"no pair {name0}, {name1}")


def mapped(mapper, database, images, out):
    """Largest model that one of pycolmap's mappers makes of a database, None without any."""
    import pycolmap

    pycolmap.logging.minloglevel = pycolmap.logging.Level.FATAL.value
    out.mkdir()
    models = getattr(pycolmap, f"{mapper}_mapping")(database, images, out)
    return max(models.values(), key=lambda model: model.num_reg_images(), default=None)


def database_content(path):
    """Everything that a database of COLMAP holds but its numbers of rows, by names of images."""
    import pycolmap

    with pycolmap.Database.open(path) as database:
        images = {image.image_id: image for image in database.read_all_images()}
        content = {}
        for number, image in images.items():
            camera = database.read_camera(image.camera_id)
            content[image.name] = (
                camera.model_name,
                (camera.width, camera.height, *camera.params),
                camera.has_prior_focal_length,
                [data.id for data in database.read_frame(image.frame_id).data_ids] == [number],
                database.read_keypoints(number).tolist(),
            )
        for pair, matches in zip(*database.read_all_matches(), strict=True):
            first, second = pycolmap.pair_id_to_image_pair(pair)
            geometry = database.read_two_view_geometry(first, second)
            names = images[first].name, images[second].name
            pose = geometry.cam2_from_cam1
            content[names] = (
                matches.tolist(),
                geometry.config,
                geometry.inlier_matches.tolist(),
                None if pose is None else pose.matrix().tolist(),
            )
    return content
