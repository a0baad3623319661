"""To Weights & Biases: each run of a study is a run there, in one group. W&B is needed only where this is used."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from freezethaw.records import Notice
from freezethaw.trainers.needing import extra

CLOSING = ("frozen", "finished", "diverged", "failed")


class WandbLog:
    """A callback of `ft.tune`: losses, configurations, states and reasons go to W&B.

    Unless `mode` is "online" nothing is sent: files are written into `folder`/wandb, which `wandb sync` takes. `name`
    is that of the study; its runs have the identifiers `name-1`, `name-2`, ... and a thawed run is resumed.
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
        self._about: dict[str, Any] = {"project": project, "group": name, "mode": mode, "dir": folder}
        self._name, self._metric = name, metric
        self._open: dict[int, Any] = {}  # by number in the study

    def __call__(self, notice: Notice) -> None:
        """Log what happened."""
        if notice.run is None:  # the search has ended
            for number in list(self._open):
                self._open.pop(number).finish()
            return
        run = self._open.get(notice.run) or self._opened(notice.run, dict(notice.config or {}))
        match notice.kind:
            case "epoch":
                run.log({self._metric: notice.loss}, step=notice.epoch)
            case "decided":
                run.summary["freezethaw.reason"] = notice.text
            case kind if kind in CLOSING:
                run.summary["freezethaw.state"] = notice.text or kind
                self._open.pop(notice.run).finish(exit_code=int(kind in ("diverged", "failed")))

    def _opened(self, number: int, config: dict[str, Any]) -> Any:
        quiet = self._wandb.Settings(console="off", x_disable_stats=True, silent=True)
        names = {"id": f"{self._name}-{number}", "name": f"run {number}", "resume": "allow"}
        run = self._wandb.init(**self._about, **names, config=config, reinit="create_new", settings=quiet)
        self._open[number] = run
        return run
