"""Log a search to MLflow or Weights & Biases: one run there per run of the study.

Both are imported on first use.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Literal

from freezethaw.errors import extra
from freezethaw.records import Notice

RUN, STATE, REASON = "freezethaw.run", "freezethaw.state", "freezethaw.reason"  # tags
STATUS = {"decided": "RUNNING", "frozen": "SCHEDULED", "finished": "FINISHED", "diverged": "FAILED", "failed": "FAILED"}


class MLflowLog:
    """A callback for `ft.tune` that logs losses, configurations, states and reasons to MLflow.

    The experiment is created if it does not exist. Use one experiment per study: a continued study continues its MLflow
    runs. `tracking_uri` defaults to MLflow's own setting.
    """

    def __init__(self, experiment: str, tracking_uri: str | None = None, metric: str = "loss") -> None:
        with extra("mlflow"):
            from mlflow.tracking import MlflowClient
        self._client: Any = MlflowClient(tracking_uri=tracking_uri)
        known = self._client.get_experiment_by_name(experiment)
        self._experiment = self._client.create_experiment(experiment) if known is None else known.experiment_id
        self._metric = metric
        self._runs: dict[int, str] = {}  # MLflow run ID by run number

    def __call__(self, notice: Notice) -> None:
        """Log one notice."""
        if notice.run is None:
            return
        run = self._run(notice.run, dict(notice.config or {}))
        if notice.kind == "epoch" and notice.loss is not None:
            self._client.log_metric(run, self._metric, notice.loss, step=notice.epoch)
        elif notice.kind in STATUS:
            self._client.set_tag(run, REASON if notice.kind == "decided" else STATE, notice.text or notice.kind)
            ended = STATUS[notice.kind] in ("FINISHED", "FAILED")
            if ended:
                self._client.set_terminated(run, STATUS[notice.kind], int(1000 * time.time()))
            else:
                self._client.update_run(run, STATUS[notice.kind])

    def _run(self, number: int, config: dict[str, Any]) -> str:
        """The MLflow run ID, found or created."""
        if number not in self._runs:
            known = self._client.search_runs([self._experiment], f"tags.`{RUN}` = '{number}'", max_results=1)
            if known:
                self._runs[number] = known[0].info.run_id
            else:
                made = self._client.create_run(self._experiment, tags={RUN: str(number)}, run_name=f"run {number}")
                self._runs[number] = made.info.run_id
                for name, value in config.items():
                    self._client.log_param(made.info.run_id, name, value)
        return self._runs[number]


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
