"""Log a search to Weights & Biases: one W&B run per run of the study, in one group. W&B is imported on first use."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from freezethaw.errors import extra
from freezethaw.records import Notice

ENDING = ("frozen", "finished", "diverged", "failed")


class WandbLog:
    """A callback for `ft.tune` that logs losses, configurations, states and reasons to W&B.

    By default nothing is uploaded: files are written to `folder`/wandb, for `wandb sync`. `mode="online"` uploads.
    `name` is the name of the study; W&B runs have the IDs `name-1`, `name-2`, ..., and a thawed run is resumed.
    """

    def __init__(
        self,
        project: str,
        name: str,
        mode: Literal["offline", "online"] = "offline",
        folder: Path | str | None = None,
        metric: str = "loss",
    ) -> None:
        with extra("wandb"):
            import wandb
        self._wandb: Any = wandb
        self._settings: dict[str, Any] = {"project": project, "group": name, "mode": mode, "dir": folder}
        self._name, self._metric = name, metric
        self._active: dict[int, Any] = {}  # by run number

    def __call__(self, notice: Notice) -> None:
        """Log one notice."""
        if notice.run is None:  # the search has ended
            for number in list(self._active):
                self._active.pop(number).finish()
            return
        run = self._active.get(notice.run) or self._open_run(notice.run, dict(notice.config or {}))
        match notice.kind:
            case "epoch":
                run.log({self._metric: notice.loss}, step=notice.epoch)
            case "decided":
                run.summary["freezethaw.reason"] = notice.text
            case kind if kind in ENDING:
                run.summary["freezethaw.state"] = notice.text or kind
                self._active.pop(notice.run).finish(exit_code=int(kind in ("diverged", "failed")))

    def _open_run(self, number: int, config: dict[str, Any]) -> Any:
        quiet = self._wandb.Settings(console="off", x_disable_stats=True, silent=True)
        names = {"id": f"{self._name}-{number}", "name": f"run {number}", "resume": "allow"}
        run = self._wandb.init(**self._settings, **names, config=config, reinit="create_new", settings=quiet)
        self._active[number] = run
        return run
