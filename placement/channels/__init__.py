"""Experts of one MoE layer on the channel sites of a PIM machine."""

from ..planning import Search as Search
from .planning import LayerPlan as LayerPlan
from .planning import plan_channels as plan_channels
from .problem import ChannelProblem as ChannelProblem
from .problem import Decision as Decision
from .problem import Settings as Settings
from .problem import channel_problem as channel_problem
