"""Conversion of spaces from and to Optuna and ConfigSpace, and from Ray Tune. Each is imported on first use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any

from freezethaw.errors import FreezeThawError, SpaceError
from freezethaw.space.parameters import Choice, Float, Int, Parameter
from freezethaw.space.values import token

MAX_LISTED = 10_000  # values written out


def from_optuna(source: Any) -> dict[str, Any]:
    """The parameter of each distribution, or a fixed value if it has only one; of a study, those of its trials."""
    optuna = _import("optuna.distributions", "optuna")
    if isinstance(source, Mapping):
        return {name: _from_distribution(name, given, None, optuna) for name, given in source.items()}
    if not hasattr(source, "get_trials"):
        raise SpaceError(f"expected an Optuna study or the distributions of a trial, not {source!r:.80}")
    trials = [t for t in source.get_trials(deepcopy=False) if t.state.name in ("COMPLETE", "PRUNED")]
    if not trials:
        raise SpaceError(f"the Optuna study {source.study_name!r} has no trial that was completed or pruned")
    found: dict[str, Any] = {}
    for trial in trials:
        for name, given in trial.distributions.items():
            found[name] = _wider(found[name], given) if name in found else given
    configs = [trial.params for trial in trials]
    return {
        name: _from_distribution(name, given, _optuna_condition(name, found, configs, optuna), optuna)
        for name, given in found.items()
    }


def _from_distribution(name: str, given: Any, when: Mapping[str, Any] | None, optuna: Any) -> Any:
    match given:
        case optuna.FloatDistribution() | optuna.IntDistribution() if given.low == given.high:
            return given.low if when is None else Choice(given.low, when=when)
        case optuna.FloatDistribution():
            return Float(given.low, given.high, log=given.log, step=given.step, when=when)
        case optuna.IntDistribution():
            step = None if given.step == 1 else given.step
            return Int(given.low, given.high, log=given.log, step=step, when=when)
        case optuna.CategoricalDistribution():
            return _choice_or_fixed(given.choices, when)
    raise SpaceError(f"{name}: {given!r} is not a supported Optuna distribution")


def _wider(one: Any, other: Any) -> Any:
    """The distribution with the range of both: an objective may change the ends of a range from trial to trial."""
    if one == other or not hasattr(one, "low") or type(one) is not type(other):
        return one
    return type(one)(min(one.low, other.low), max(one.high, other.high), log=one.log, step=one.step)


def _optuna_condition(
    name: str, found: Mapping[str, Any], configs: Sequence[Mapping[str, Any]], optuna: Any
) -> dict[str, list[Any]] | None:
    """The choice or integer that explains which trials have this parameter; None if all of them do."""
    having = [config for config in configs if name in config]
    lacking = [config for config in configs if name not in config]
    if not lacking:
        return None
    for parent, given in found.items():
        discrete = isinstance(given, optuna.CategoricalDistribution | optuna.IntDistribution)
        if parent == name or not discrete or not all(parent in config for config in having):
            continue
        if list(having[0]).index(parent) > list(having[0]).index(name):
            continue  # it was suggested later
        values = list(dict.fromkeys(config[parent] for config in having))
        others = [config[parent] for config in lacking if parent in config]
        if any(value in values for value in others):
            continue
        if isinstance(given, optuna.IntDistribution) and others and min(values) > max(others):
            values = list(range(min(values), given.high + 1, given.step))  # as for the units of the third layer
        return {parent: sorted(values, key=str)}
    raise SpaceError(
        f"{name}: {len(having)} of {len(configs)} trials of the Optuna study have it, and no choice or integer "
        "explains which; write the space by hand, with `when`"
    )


def to_optuna(parameters: Mapping[str, Parameter], fixed: Mapping[str, Any]) -> dict[str, Any]:
    """The distribution of each parameter; a fixed value becomes a categorical distribution."""
    optuna = _import("optuna.distributions", "optuna")
    distributions = {name: optuna.CategoricalDistribution([value]) for name, value in fixed.items()}
    for name, parameter in parameters.items():
        match parameter:
            case Float(low=low, high=high, log=log, step=step):
                distributions[name] = optuna.FloatDistribution(low, high, log=log, step=step)
            case Int(low=low, high=high, log=log, step=step):
                distributions[name] = optuna.IntDistribution(low, high, log=log, step=step or 1)
            case Choice(values=values):
                distributions[name] = optuna.CategoricalDistribution(list(values))
    return distributions


def from_ray_tune(param_space: Mapping[str, Any]) -> dict[str, Any]:
    """The parameter of each domain and the value of each constant; nested names are joined by /, as in Tune."""
    library = _import("ray.tune.search.sample", "ray[tune]")
    entries: dict[str, Any] = {}
    for name, given in param_space.items():
        if isinstance(given, Mapping) and set(given) == {"grid_search"}:
            entries[name] = _choice_or_fixed(given["grid_search"])
        elif isinstance(given, Mapping):
            entries |= {f"{name}/{inner}": entry for inner, entry in from_ray_tune(given).items()}
        else:
            entries[name] = _from_domain(name, given, library) if isinstance(given, library.Domain) else given
    return entries


def _from_domain(name: str, given: Any, library: Any) -> Any:
    sampler, step = given.get_sampler(), None
    if isinstance(sampler, library.Quantized):
        sampler, step = sampler.get_sampler(), sampler.q
    log = isinstance(sampler, library.LogUniform)
    match given:
        case library.Categorical():
            return _choice_or_fixed(given.categories)
        case library.Float() if log or isinstance(sampler, library.Uniform):
            return Float(given.lower, given.upper, log=log, step=step)
        case library.Integer() if step in (None, 1):  # the upper end is exclusive
            return Int(given.lower, given.upper - 1, log=log)
        case library.Integer():  # multiples of the step, upper end inclusive
            return Int(-(-given.lower // step) * step, given.upper // step * step, log=log, step=step)
    raise SpaceError(f"{name}: tune's {type(given).__name__} is not supported; use a uniform domain or a choice")


def from_configspace(configspace: Any) -> dict[str, Any]:
    """The parameter or fixed value of each hyperparameter, with its conditions."""
    library = _import("ConfigSpace", "ConfigSpace")
    if configspace.forbidden_clauses:
        raise SpaceError(f"forbidden clauses are not supported: {configspace.forbidden_clauses[0]}")
    when: dict[str, dict[str, list[Any]]] = {}
    for condition in configspace.conditions:
        for part in _parts(condition, library):
            parent, values = _parent_values(part, library)
            needed = when.setdefault(next(_leaves(part)).child.name, {})
            tokens = {token(value) for value in values}
            needed[parent] = [v for v in needed[parent] if token(v) in tokens] if parent in needed else values
    return {name: _from_hyperparameter(h, when.get(name), library) for name, h in configspace.items()}


def _from_hyperparameter(given: Any, when: dict[str, list[Any]] | None, library: Any) -> Any:
    match given:
        case library.UniformFloatHyperparameter():
            return Float(given.lower, given.upper, log=given.log, when=when)
        case library.UniformIntegerHyperparameter():
            return Int(given.lower, given.upper, log=given.log, when=when)
        case library.OrdinalHyperparameter():
            return _choice_or_fixed(given.sequence, when, ordered=True)
        case library.CategoricalHyperparameter():
            return _choice_or_fixed(given.choices, when)
        case library.Constant():
            return _choice_or_fixed([given.value], when)
    raise SpaceError(f"{given.name}: {type(given).__name__} is not supported; use a uniform or categorical one")


def _parts(condition: Any, library: Any) -> Iterator[Any]:
    """The terms of a conjunction."""
    if isinstance(condition, library.AndConjunction):
        for component in condition.components:
            yield from _parts(component, library)
    else:
        yield condition


def _leaves(condition: Any) -> Iterator[Any]:
    if hasattr(condition, "components"):
        for component in condition.components:
            yield from _leaves(component)
    else:
        yield condition


def _parent_values(condition: Any, library: Any) -> tuple[str, list[Any]]:
    """The parent of a condition and the values that satisfy it."""
    if isinstance(condition, library.EqualsCondition):
        return condition.parent.name, [condition.value]
    if isinstance(condition, library.InCondition):
        return condition.parent.name, list(condition.values)
    parents = {leaf.parent.name: leaf.parent for leaf in _leaves(condition)}
    (name, parent), *others = parents.items()
    values: list[Any] = []
    match parent:
        case library.UniformIntegerHyperparameter() if parent.upper - parent.lower < MAX_LISTED:
            values = list(range(parent.lower, parent.upper + 1))
        case library.OrdinalHyperparameter():
            values = list(parent.sequence)
        case library.CategoricalHyperparameter():
            values = list(parent.choices)
    if others or not values:
        raise SpaceError(
            f"{next(_leaves(condition)).child.name}: the condition {condition} cannot be expressed with `when`"
        )
    return name, [value for value in values if condition.satisfied_by_value({name: value})]


def to_configspace(parameters: Mapping[str, Parameter], fixed: Mapping[str, Any]) -> Any:
    """A `ConfigurationSpace` with the same parameters, fixed values and conditions."""
    library = _import("ConfigSpace", "ConfigSpace")
    made = {name: _to_hyperparameter(name, parameter, library) for name, parameter in parameters.items()}
    conditions = []
    for name, parameter in parameters.items():
        parts = []
        for parent, given in (parameter.when or {}).items():
            if parent in fixed:
                continue  # always true
            values = [parameters[parent].check(value) for value in given]
            parts.append(library.InCondition(made[name], made[parent], values))
        if parts:
            conditions.append(parts[0] if len(parts) == 1 else library.AndConjunction(*parts))
    configspace = library.ConfigurationSpace()
    configspace.add(*(library.Constant(name, value) for name, value in fixed.items()), *made.values(), *conditions)
    return configspace


def _to_hyperparameter(name: str, parameter: Parameter, library: Any) -> Any:
    default = {} if parameter.guess is None else {"default_value": parameter.guess}
    match parameter:
        case Choice(values=values, ordered=False):
            return library.CategoricalHyperparameter(name, list(values), **default)
        case Choice(values=values):
            return library.OrdinalHyperparameter(name, list(values), **default)
        case Float(step=None):
            return library.UniformFloatHyperparameter(name, parameter.low, parameter.high, log=parameter.log, **default)
        case Int(step=None):
            return library.UniformIntegerHyperparameter(
                name, parameter.low, parameter.high, log=parameter.log, **default
            )
    if (parameter.count or 0) > MAX_LISTED:
        raise SpaceError(f"{name}: ConfigSpace has no steps, and {parameter.count} values are too many to list")
    every = [parameter.at(index) for index in range(parameter.count or 0)]
    return library.OrdinalHyperparameter(name, every, **default)


def _choice_or_fixed(values: Any, when: Mapping[str, Any] | None = None, ordered: bool = False) -> Any:
    """A choice, or a fixed value if there is only one."""
    plain = len(values) == 1 and (values[0] is None or isinstance(values[0], bool | int | float | str))
    return values[0] if plain and not when else Choice(list(values), ordered=ordered, when=when)


def _import(module: str, package: str) -> Any:
    try:
        return import_module(module)
    except ImportError:
        raise FreezeThawError(f"{package} is not installed: pip install {package}") from None
