"""Who holds what: problems with their cost and bound, solvers, and one `solve()` that measures them."""

from .problem import Bound as Bound
from .problem import Cost as Cost
from .problem import Problem as Problem
from .registry import register as register
from .registry import solvers_of as solvers_of
from .result import Budget as Budget
from .result import Progress as Progress
from .result import Result as Result
from .result import Stop as Stop
from .solve import solve as solve
