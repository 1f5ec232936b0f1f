"""The process that does the work: its limits, its errors, and that it goes on after them."""

import copy
import time

import pytest

from manymatch.app.folder import matrix, thumbnail
from manymatch.app.request import PairRequest
from manymatch.app.session import Limits, Session
from manymatch.app.worker import STOPPED, JobError, Stop, Worker
from tests.app.conftest import DEMO

STREET = (DEMO / "street2.jpg", DEMO / "street3.jpg")


@pytest.fixture(scope="module")
def worker():
    worker = Worker()
    yield worker
    worker.close()


def endless(**changes):
    """A request that would take hours."""
    options = {"min_iterations": 10**8, "max_iterations": 10**8, **changes}
    return PairRequest(STREET, changes=options)


def test_job_that_takes_too_long_ends_with_one_sentence(worker):
    usual = worker.run("match", PairRequest(STREET), seconds=120)
    process = worker._process.pid
    start = time.monotonic()
    with pytest.raises(JobError, match="took more than 2 s and was stopped"):
        worker.run("match", endless(), seconds=2)
    assert time.monotonic() - start < 60
    # The same process goes on, with the features that it kept.
    assert worker._process.pid == process
    again = worker.run("match", PairRequest(STREET), seconds=120)
    assert again["numbers"] == usual["numbers"]


def test_user_can_stop_a_job(worker):
    stop = Stop(wanted=True)
    with pytest.raises(JobError, match=STOPPED):
        worker.run("match", endless(), seconds=600, stop=stop)


def test_process_that_ends_is_replaced(worker):
    worker.start()
    worker._process.kill()
    worker._process.wait()
    assert worker.run("match", PairRequest(STREET), seconds=120)["verdict"]


def test_error_is_the_sentence_of_the_library(worker, tmp_path):
    bad = tmp_path / "bad.jpg"
    bad.write_text("no image")
    with pytest.raises(JobError, match="image0 must be an image file"):
        worker.run("match", PairRequest((bad, STREET[1])), seconds=120)


def test_photographs_of_a_session(tmp_path):
    session = Session(tmp_path)
    upload = tmp_path / "x" / "a b.jpg"
    upload.parent.mkdir()
    upload.write_bytes(STREET[0].read_bytes())
    given = {"path": str(upload), "orig_name": "../a b.jpg"}
    first, second = session.pair(given, given)
    assert (first.name, second.name) == ("a-b.jpg", "second-a-b.jpg")
    assert session.pair(given, given) == (first, second)
    assert first.is_relative_to(session.folder)
    for path in ("/etc/passwd", str(STREET[0]), f"{tmp_path}/x/../../y.jpg", "", None):
        with pytest.raises(JobError, match="Only photographs that were uploaded"):
            session.pair(given, {"path": path})
    link = tmp_path / "link.jpg"
    link.symlink_to("/etc/passwd")
    with pytest.raises(JobError, match="Only photographs"):
        session.pair(given, {"path": str(link)})
    with pytest.raises(JobError, match="two photographs"):
        session.pair(given, None)
    session.close()
    assert not session.folder.exists()


def test_copy_of_a_session_is_that_of_another_user(tmp_path):
    session = Session(tmp_path)
    session.photos = [tmp_path]
    other = copy.deepcopy(session)
    assert other.photos == []
    assert other.folder != session.folder
    session.close()
    assert other.folder.is_dir()


def test_folder_has_a_limit(tmp_path):
    session = Session(tmp_path)
    photos = sorted((DEMO / "courtyard" / "images").iterdir())
    with pytest.raises(JobError, match="from 2 to 3 photographs here, got 20"):
        session.take(photos, Limits(photos=3))
    place = session.take(photos[:3], Limits())
    assert [path.name for path in session.photos] == ["00.jpg", "01.jpg", "02.jpg"]
    assert place == session.photos[0].parent


def test_matrix_escapes_names_and_colours_verdicts(tmp_path):
    photos = [tmp_path / "<b>.jpg", tmp_path / "b.jpg"]
    row = {"verdict": "solved", "matches": 12, "reason": "", "error": None}
    page = matrix(photos, {(photos[0].name, "b.jpg"): row}, "Done & <dusted>.")
    assert "<b>" not in page
    assert "&lt;b&gt;.jpg – b.jpg: solved, 12 matches" in page
    assert "Done &amp; &lt;dusted&gt;." in page
    assert page.count('class="mm-cell good solved"') == 2
    assert thumbnail(photos[0]) is None
    assert thumbnail(STREET[0]).startswith("data:image/jpeg")
