"""What earlier studies predict, as inputs of the model. Not in the paper.

An earlier study is summarised by the posterior mean of its asymptote over configurations. The model of this study takes
that mean as one more input, beside the hyperparameters and with a length scale of its own: a nonlinear autoregressive
Gaussian process (Perdikaris et al. 2017). It learns how the losses here depend on the expected losses there, in either
direction. If they do not, that length scale becomes long, and the model is the one without the earlier study.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from freezethaw.decide.shared_parameters import SharedFeatures
from freezethaw.errors import SpaceError
from freezethaw.losses import Transform
from freezethaw.model.correlation import correlation, scaled
from freezethaw.model.hyperparameter_samples import HyperparameterSamples
from freezethaw.plain import percent
from freezethaw.records import Config
from freezethaw.space import Space
from freezethaw.space.parameters import Parameter, parameter_from_dict

Array = NDArray[np.float64]

RANGE = 6.0  # standard deviations of the asymptotes there from 0 to 1 of an input
WORTH_SAYING = 0.05  # weight of an earlier study below which decisions do not mention it


@dataclass(frozen=True)
class EarlierStudy:
    """The posterior mean of the asymptote of an earlier study: constant + sum_n weights_n k(x, x_n).

    It is a function of the parameters that both studies have; those that only the earlier one has are integrated out.
    """

    name: str
    parameters: Mapping[str, Parameter]  # that both have, on this study's scales, with room for the values of both
    configs: tuple[Config, ...]  # the values of these parameters in its runs
    hyperparameters: Mapping[str, float]  # length scales and warps
    weights: tuple[float, ...]
    constant: float
    centre: float  # mean of the asymptotes of its runs
    scale: float  # and their standard deviation, the uncertainty of each included
    spread: float  # standard deviation of the input over the configurations of its runs
    transform: Transform  # to the losses of that study

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and strings."""
        plain = {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self.transform).items()}
        return {
            "name": self.name,
            "parameters": {name: parameter.to_dict() for name, parameter in self.parameters.items()},
            "configs": [dict(config) for config in self.configs],
            "hyperparameters": dict(self.hyperparameters),
            "weights": list(self.weights),
            "constant": self.constant,
            "centre": self.centre,
            "scale": self.scale,
            "spread": self.spread,
            "transform": plain,
        }

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> EarlierStudy:
        """The summary that `to_dict` wrote."""
        transform: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in plain["transform"].items()}
        return cls(
            plain["name"],
            {name: parameter_from_dict(parameter) for name, parameter in plain["parameters"].items()},
            tuple(plain["configs"]),
            plain["hyperparameters"],
            tuple(plain["weights"]),
            plain["constant"],
            plain["centre"],
            plain["scale"],
            plain["spread"],
            Transform(**transform),
        )

    def input(self, expected: Array) -> Array:
        """Expected losses in model units as inputs: from 0, three standard deviations below the mean, to 1."""
        return np.clip(0.5 + (expected - self.centre) / (RANGE * self.scale), 0.0, 1.0)

    def loss(self, found: float) -> float:
        """An input as a loss of that study."""
        return float(self.transform.from_model(self.centre + (found - 0.5) * RANGE * self.scale))


class EarlierInputs:
    """The inputs that earlier studies give to the model, for any features of configurations of a space."""

    def __init__(self, studies: Sequence[EarlierStudy], space: Space) -> None:
        self.studies = tuple(studies)
        self._known: list[tuple[SharedFeatures, Array]] = []
        self.best: list[Config] = []  # of each study the configuration of the run with the lowest expected loss
        for study in self.studies:
            shared = SharedFeatures(study.parameters, space)
            inputs = scaled(shared.of_configs(study.configs), shared.geometry, study.hyperparameters)
            self._known.append((shared, inputs))
            order = (correlation(inputs, inputs) @ np.array(study.weights)).argsort(kind="stable")
            possible = (_completed(study.configs[i], space) for i in order)
            self.best += [config for config in possible if config is not None][:1]

    def of(self, features: Array) -> Array:
        """(C, K) expected losses in the K earlier studies, from 0 (low) to 1."""
        found = np.empty((len(features), len(self.studies)))
        for k, (study, (shared, inputs)) in enumerate(zip(self.studies, self._known, strict=True)):
            here = scaled(shared.of(features), shared.geometry, study.hyperparameters)
            mean = study.constant + correlation(here, inputs) @ np.array(study.weights)
            found[:, k] = study.input(mean)
        return found


def _completed(config: Config, space: Space) -> Config | None:
    """A configuration with these values and the others in the middle; None if a value lies outside the bounds."""
    try:
        return space.completed(config)
    except SpaceError:
        return None


def contribution(inputs: EarlierInputs, features: Array, samples: HyperparameterSamples) -> str:
    """What the earlier study with the largest weight expects of a configuration, for people; empty if it is small."""
    weights = relevance(samples, [study.spread for study in inputs.studies])
    most = int(weights.argmax())
    if weights[most] < WORTH_SAYING:
        return ""
    study = inputs.studies[most]
    loss = study.loss(float(inputs.of(features[:, : features.shape[1] - len(weights)])[0, most]))
    return f"; study {study.name} expects {loss:.4g} of this configuration (weight {percent(weights[most])})"


def relevance(samples: HyperparameterSamples, spreads: Sequence[float]) -> Array:
    """(K,) how much the model uses the input of each earlier study, from the standard deviations of these inputs.

    That is its share of the expected squared distance between two configurations, averaged over the samples. The length
    scales of these inputs are the last ones; a parameter is uniform in the unit cube.
    """
    values = samples.stacked()
    lengths = sorted((int(name.removeprefix("length.")), name) for name in values if name.startswith("length."))
    variances = np.append(np.full(len(lengths) - len(spreads), 1 / 12), np.square(spreads))
    distance = variances * np.stack([values[name] for _, name in lengths], axis=1) ** -2.0
    return np.asarray(samples.weights @ (distance / distance.sum(axis=1, keepdims=True)))[-len(spreads) :]
