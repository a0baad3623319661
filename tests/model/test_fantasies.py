"""Fantasies: conditioning on pending losses equals conditioning from the start, without a new factor."""

from __future__ import annotations

import numpy as np
import pytest

from freezethaw.model import specification
from freezethaw.model.curves import Curves
from freezethaw.model.fantasies import condition_on_pending, pending_losses
from freezethaw.model.posterior import Points, Posterior, condition
from freezethaw.model.specification import Geometry

from .problems import draw_values

LENGTHS = (1, 7, 3, 12, 2, 5)
AWAITED = ((1, 1), (3, 6), (np.array([0.2, 0.9]), 1), (np.array([0.7, 0.7]), 5))  # whose losses, and how many


def curves(rng: np.random.Generator) -> Curves:
    """A few runs of several lengths."""
    configs = rng.random((len(LENGTHS), 2))
    return Curves.of(configs, [1.0 / np.arange(1, n + 1) + 0.1 * rng.standard_normal(n) for n in LENGTHS])


def posterior(name: str, seed: int) -> Posterior:
    """Conditioned on the curves, at values drawn from the prior."""
    rng = np.random.default_rng(seed)
    spec = specification.paper((-1.0, 2.0)) if name == "paper" else specification.drift(2, 20.0)
    values = draw_values(spec.parameters(Geometry.plain(2)), rng)
    if "noise" in values:
        values = {**values, "noise": max(values["noise"], 1e-3)}
    return condition(curves(rng), spec, values)


def supposed(p: Posterior, rng: np.random.Generator) -> tuple[Posterior, Points, np.ndarray]:
    """The posterior after made-up losses; and those losses, all at once, before."""
    waiting = pending_losses(p, *zip(*AWAITED, strict=True))
    losses = [a.mean + 0.3 * rng.standard_normal(len(a.mean)) for a in waiting]
    new = [who for who, _ in AWAITED if isinstance(who, np.ndarray)]
    observed = [p.curves.observed(run) for run in range(len(p.curves))]
    runs = []
    for (who, count), y in zip(AWAITED, losses, strict=True):
        ahead = np.arange(1.0, count + 1)
        if isinstance(who, np.ndarray):
            runs.append(len(observed))
            observed.append((ahead, y))
        else:
            runs.append(who)
            t, before = observed[who]
            observed[who] = np.append(t, t[-1] + ahead), np.append(before, y)
    longer = Curves.of(np.vstack([p.curves.configs, new]), [y for _, y in observed], [t for t, _ in observed])
    return (
        condition_on_pending(p, longer, runs, waiting, losses),
        Points.concatenate([a.points for a in waiting]),
        np.concatenate(losses),
    )


@pytest.mark.parametrize("seed", range(5))
def test_with_one_scale_for_all_it_is_conditioning_from_the_start(seed):
    p = posterior("paper", seed)
    fast, _, _ = supposed(p, np.random.default_rng(seed))
    slow = condition(fast.curves, p.specification, p.values)
    for points in (
        lambda q: q.points_of_run(0, [2.0, 9.0]),
        lambda q: q.points_of_run(3, [19.0, 30.0]),  # awaited itself
        lambda q: q.points_of_run(7, [6.0]),  # being started
        lambda q: q.points_of_config([0.5, 0.5], [1.0, 15.0]),
    ):
        found, wanted = fast.joint(points(fast)), slow.joint(points(slow))
        np.testing.assert_allclose(found.mean, wanted.mean, rtol=1e-6, atol=1e-8)
        np.testing.assert_allclose(found.covariance, wanted.covariance, rtol=1e-6, atol=1e-8)
    assert fast.log_evidence == p.log_evidence


@pytest.mark.parametrize("seed", range(5))
def test_with_a_scale_for_each_run_it_is_gaussian_conditioning_on_the_awaited_losses(seed):
    p = posterior("drift", seed)
    fast, waiting, losses = supposed(p, np.random.default_rng(seed))
    targets = [p.points_of_run(0, [2.0, 9.0]), p.points_of_run(5, [20.0]), p.points_of_config([0.5, 0.5], [1.0, 15.0])]
    joint = p.joint(Points.concatenate([waiting, *targets]))
    m = len(losses)
    # a run that is being started has the scale that is expected of any: nu / (nu - 2), or of a stalled one
    scales = p.pseudo_observations.scales
    nu = scales.model.freedom
    fresh = 0.9 * nu / (nu - 2) + 0.1 * scales.model.stalled_scale
    s = np.sqrt([scales.plug_in[run] if run >= 0 else fresh for run in waiting.runs])
    noisy = joint.shared[:m, :m] + s[:, None] * waiting.residual * s
    gain = np.linalg.solve(noisy, joint.shared[:m, m:]).T
    mean = joint.mean[m:] + gain @ (losses - joint.mean[:m])
    shared = joint.shared[m:, m:] - gain @ joint.shared[:m, m:]
    found = fast.joint(
        Points.concatenate(
            [
                fast.points_of_run(0, [2.0, 9.0]),
                fast.points_of_run(5, [20.0]),
                fast.points_of_config([0.5, 0.5], [1, 15]),
            ]
        )
    )
    np.testing.assert_allclose(found.mean, mean, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(found.shared, shared, rtol=1e-5, atol=1e-8)
