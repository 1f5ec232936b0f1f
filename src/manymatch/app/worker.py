"""A process that does one job at a time, and that can be stopped without losing what it keeps."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

# Seconds between two looks at the clock, of a job and of one that waits; seconds that an
# interrupted job has to end.
_TICK, _WAIT, _GRACE = 0.02, 0.5, 10.0
STOPPED = "The job was stopped."
ENDED = "The process that does the work ended, perhaps for want of memory. Please try again."


class JobError(ValueError):
    """One sentence for the user about a job that has no result."""


@dataclasses.dataclass
class Stop:
    """A wish to stop a job, which its user may have at any time."""

    wanted: bool = False


class Worker:
    """Runs methods of `manymatch.app.jobs.Jobs` in a process of its own, one after another.

    A job that takes too long, or that its user stops, is interrupted as by Ctrl-C: what the process
    keeps for other users stays. If it does not end, the process is killed and another is started.
    """

    def __init__(self) -> None:
        # Those who wait for their turn; the first one has it.
        self._queue: list[object] = []
        self._moved = threading.Condition()
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: Connection | None = None

    def start(self) -> Connection:
        """Start the process if it does not run."""
        if self._process is not None and self._process.poll() is None and self._pipe is not None:
            return self._pipe
        self.close()
        ours, theirs = socket.socketpair()
        # Our own module. It ends when its standard input does: with us.
        command = [sys.executable, "-m", "manymatch.app.worker", str(theirs.fileno())]
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603
                command,
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.PIPE,
                start_new_session=True,
            )
        self._pipe = Connection(ours.detach())
        return self._pipe

    def close(self) -> None:
        """End the process."""
        # The thread of a job may do so at the same time.
        process, pipe = self._process, self._pipe
        self._process = self._pipe = None
        if pipe is not None:
            pipe.close()
        if process is not None:
            process.kill()
            process.wait()
            if process.stdin is not None:
                process.stdin.close()

    def run(
        self,
        job: str,
        *arguments: Any,
        seconds: float,
        progress: Callable[[Any], object] | None = None,
        stop: Stop | None = None,
        gives_way: bool = False,
    ) -> Any:
        """Do a job and return its result.

        `progress` gets the job's place in the queue while it waits, then what it reports. A job
        that `gives_way` is stopped when another one comes.

        Raises
        ------
        JobError
            If the job refuses its arguments, takes longer than `seconds`, or is stopped.
        """
        own = object()

        def stopped() -> bool:
            return (stop is not None and stop.wanted) or (gives_way and len(self._queue) > 1)

        with self._moved:
            self._queue.append(own)
        try:
            with self._moved:
                while place := self._queue.index(own):
                    if stopped():
                        raise JobError(STOPPED)
                    if progress is not None:
                        progress(place)
                    self._moved.wait(_WAIT)
            pipe = self.start()
            pipe.send((job, arguments))
            return self._answer(pipe, seconds, progress, stopped)
        except (EOFError, OSError) as error:
            self.close()
            raise JobError(ENDED) from error
        finally:
            with self._moved:
                self._queue.remove(own)
                self._moved.notify_all()

    def _answer(
        self,
        pipe: Connection,
        seconds: float,
        progress: Callable[[Any], object] | None,
        stopped: Callable[[], bool],
    ) -> Any:
        reason, deadline = "", time.monotonic() + seconds
        while True:
            if pipe.poll(_TICK):
                kind, value = pipe.recv()
                if kind == "progress":
                    if progress is not None and not reason:
                        progress(value)
                    continue
                if kind == "result" and not reason:
                    return value
                raise JobError(reason or value)
            if reason:
                if time.monotonic() > deadline:
                    self.close()
                    raise JobError(reason)
                continue
            if stopped():
                reason = STOPPED
            elif time.monotonic() > deadline:
                reason = (
                    f"It took more than {seconds:g} s and was stopped. Smaller photographs, fewer "
                    "of them, or the preset classic take less time."
                )
            if reason and self._process is not None:
                self._process.send_signal(signal.SIGINT)
                deadline = time.monotonic() + _GRACE


def _serve(pipe: Connection) -> None:
    """Do jobs until there are no more."""
    from manymatch.app.jobs import Jobs

    jobs = Jobs(lambda value: pipe.send(("progress", value)))
    while True:
        try:
            name, arguments = pipe.recv()
        except KeyboardInterrupt:  # came after its job had ended
            continue
        try:
            answer = ("result", getattr(jobs, name)(*arguments))
        except KeyboardInterrupt:
            answer = ("error", STOPPED)
        except (ValueError, OSError, MemoryError, ModuleNotFoundError) as error:
            answer = ("error", str(error).splitlines()[0] if str(error) else "Out of memory.")
        except Exception:  # noqa: BLE001 - any other error is ours; the process goes on
            traceback.print_exc()
            answer = ("error", "Something went wrong here; the terminal of the app says what.")
        pipe.send(answer)


def _end_with_parent() -> None:
    with contextlib.suppress(OSError):
        while os.read(0, 1):
            pass
    os._exit(0)


if __name__ == "__main__":
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with contextlib.suppress(EOFError, OSError, KeyboardInterrupt):
        _serve(Connection(int(sys.argv[1])))
    os._exit(0)
