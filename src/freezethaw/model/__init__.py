"""The Gaussian-process model of learning curves: pure functions of arrays, immutable values.

The method of the paper (Swersky, Snoek and Adams 2014), in reading order:

- `kernels`, `correlation`: covariance functions over epochs and over configurations
- `specification`, `priors`: models as basis functions, kernels and priors; `specification.paper` is the paper's
- `summaries`, `pseudo_observations`: sufficient statistics of the curves, log evidence
- `posterior`: predictions of asymptotes and losses
- `slice_sampler`, `inference`: hyperparameter samples

Data and units: `curves`, `loss_units`, `hyperparameter_samples`, `forecaster`, `linear`.

Beyond the paper: `scales` (noise levels of runs), `sequential` (samples updated after each loss), `factor_updates`,
`predictions` (many runs at once, screening), `fantasies` (pending losses).
"""
