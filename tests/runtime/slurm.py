"""A stand-in for Slurm: a queue of array tasks, one process group each, with Slurm's variables, signals and requeuing.

Steps get SIGUSR1 as `--signal=USR1@...` sends it, SIGTERM as a pre-emption does, and SIGKILL as a lost node is; the
batch script itself gets no signal but the last.
"""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

SRUN = """#!/bin/sh
echo $$ > "$SLURM_STEPS/$SLURM_ARRAY_TASK_ID"
exec "$@"
"""
SCONTROL = """#!/bin/sh
[ "$1" = requeue ] && touch "$SLURM_STEPS/requeued-$2"
"""


class Slurm:
    """Runs a batch script as an array of so many tasks."""

    def __init__(self, folder: Path, script: Path, arguments: list[str], tasks: int, environment: dict[str, str]):
        self._steps, tools = folder / "steps", folder / "tools"
        for place in (self._steps, tools):
            place.mkdir()
        for name, text in (("srun", SRUN), ("scontrol", SCONTROL)):
            (tools / name).write_text(text)
            (tools / name).chmod(0o755)
        self._command, self._folder = ["bash", str(script), *arguments], folder
        self._environment = os.environ | environment | {"SLURM_STEPS": str(self._steps), "SLURM_ARRAY_JOB_ID": "7"}
        self._environment["PATH"] = f"{tools}:{self._environment['PATH']}"
        self.codes: list[int] = []  # with which tasks have ended
        self._jobs = {task: self._start(task) for task in range(1, tasks + 1)}

    def send(self, task: int, number: signal.Signals) -> None:
        """To the step of a task; SIGKILL takes the node with all that is on it, and Slurm requeues the task itself."""
        if number == signal.SIGKILL:
            os.killpg(self._jobs[task].pid, number)
            self._jobs[task].wait()
            self._jobs[task] = self._start(task)
        else:
            os.kill(int((self._steps / str(task)).read_text()), number)

    def update(self) -> bool:
        """Start again what was requeued; whether any task still runs."""
        for task, job in list(self._jobs.items()):
            if job.poll() is not None:
                self.codes.append(job.returncode)
                del self._jobs[task]
                wanted = self._steps / f"requeued-7_{task}"
                if wanted.exists():
                    wanted.unlink()
                    self._jobs[task] = self._start(task)
        return bool(self._jobs)

    def cancel(self) -> None:
        """End all that still runs."""
        for job in self._jobs.values():
            os.killpg(job.pid, signal.SIGKILL)
            job.wait()

    def output(self) -> str:
        return "\n".join(path.read_text() for path in sorted(self._folder.glob("worker-*.txt")))

    def _start(self, task: int) -> subprocess.Popen[bytes]:
        environment = self._environment | {"SLURM_ARRAY_TASK_ID": str(task)}
        with (self._folder / f"worker-{task}.txt").open("ab") as log:
            return subprocess.Popen(
                self._command, env=environment, cwd=self._folder, stdout=log, stderr=log, start_new_session=True
            )
