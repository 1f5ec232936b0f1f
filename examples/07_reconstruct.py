"""A folder of photographs to a COLMAP database and, with pycolmap, to a sparse reconstruction.

Needs `pip install ".[images]"`. Usage: 07_reconstruct.py [folder of images]
In the shell: manymatch batch FOLDER --out out/batch --format colmap-db
"""

import sys
import tempfile
from pathlib import Path

try:
    import pycolmap
except ModuleNotFoundError as missing:
    sys.exit(f'This example needs {missing.name}: pip install ".[images]"')

import manymatch

photos = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent / "photos")

with tempfile.TemporaryDirectory() as folder:  # or a folder of your own; a killed batch resumes
    # All pairs of a folder; or a list of pairs, and the folder of its images.
    summary = manymatch.run_batch(photos, None, folder, "classic", formats=["colmap-db"])
    verdicts = ", ".join(f"{count} {name}" for name, count in summary.counts.items() if count)
    print(f"{summary.total} pairs: {verdicts}")

    pycolmap.logging.minloglevel = pycolmap.logging.Level.ERROR.value
    database, model_folder = Path(folder) / "database.db", Path(folder) / "model"
    model_folder.mkdir()
    models = pycolmap.incremental_mapping(database, photos, model_folder)
    for model in models.values():
        print(
            f"{model.num_reg_images()} images registered, {model.num_points3D()} points, "
            f"reprojection error {model.compute_mean_reprojection_error():.2f} px"
        )
        for image in sorted(model.images.values(), key=lambda image: image.name):
            print(f"{image.name} at {image.projection_center().round(2)}")
