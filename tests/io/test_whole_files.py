"""What a killed process left behind is removed later; what others are writing stays."""

import os

from manymatch.io.files import temporary_name, whole_files


def test_temporary_folder_of_long_ago_is_removed(tmp_path):
    old, new = tmp_path / temporary_name(), tmp_path / temporary_name()
    for folder in (old, new):
        (folder / "deep").mkdir(parents=True)
        (folder / "deep" / "half").write_text("half")
    os.utime(old, (0, 0))
    with whole_files(tmp_path) as place:
        (place / "result").write_text("whole")
    assert sorted(tmp_path.iterdir()) == sorted([new, tmp_path / "result"])
