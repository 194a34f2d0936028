"""Expert shards on the cores of near-memory dies: the family `cores`."""

from .layout import Layout as Layout
from .planning import LayerPlan as LayerPlan
from .planning import plan_cores as plan_cores
from .problem import CoreProblem as CoreProblem
from .problem import Decision as Decision
from .problem import Settings as Settings
from .problem import core_problem as core_problem
