"""Log a search to MLflow: one MLflow run per run of the study. MLflow is imported on first use."""

from __future__ import annotations

import time
from typing import Any

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
