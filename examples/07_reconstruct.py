"""A folder of photographs to a model, and a photograph found in it.

Needs `pip install ".[sfm]"`. Usage: 07_reconstruct.py [folder of images]
In the shell: manymatch reconstruct FOLDER --out out/model
              manymatch localize PHOTO --map out/model
"""

import sys
import tempfile
from pathlib import Path

try:
    import pycolmap  # noqa: F401 - COLMAP's engine, which makes the model
except ModuleNotFoundError as missing:
    sys.exit(f'This example needs {missing.name}: pip install ".[sfm]"')

import manymatch

photos = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent / "photos")

with tempfile.TemporaryDirectory() as folder:  # or a folder of your own; a killed run resumes
    scene = manymatch.reconstruct(photos, folder, preset="classic")
    print(scene)
    for pair in scene.pairs:
        if not pair.accepted:
            print(f"{pair.name0} - {pair.name1}: {pair.reason}")
    for name, pose in scene.models[0].poses.items():
        print(f"{name} at {pose.center.round(2)}")

    # The files are those of COLMAP, so that its tools and pycolmap read them.
    print(f"Model in {scene.files['model'].name}/0, page in {scene.files['page'].name}")
    (found,) = manymatch.localize([photos / scene.photos[0]], folder, preset="classic")
    print(f"{found.name} is {found.confidence.verdict}, at {found.pose.center.round(2)}")
