"""Logical experts in the physical slots of GPU ranks: the family `replicas`."""

from .planning import LayerPlan as LayerPlan
from .planning import plan_replicas as plan_replicas
from .problem import Decision as Decision
from .problem import ReplicaProblem as ReplicaProblem
from .problem import Settings as Settings
from .problem import replica_problem as replica_problem
from .ranks import Ranks as Ranks
from .ranks import even_ranks as even_ranks
from .rates import Rates as Rates
