"""From the state of a study to its next decision: pure functions. `decide` is the only place that decides.

The modules in reading order: `definition` (what a study is), `configurations` (what may be started), `inference_cache`
(forecasts from all losses), `stopping` (budgets), `decision` (the choice and its reason).
"""

from freezethaw.decide.decision import POLICIES, decide
from freezethaw.decide.definition import MODELS, StudyDefinition
from freezethaw.decide.inference_cache import Inference, InferenceCache

__all__ = ["MODELS", "POLICIES", "Inference", "InferenceCache", "StudyDefinition", "decide"]
