"""Which experts of an MoE layer the GPU computes and which PIM."""

from .layer import PartitionLayer as PartitionLayer
from .layer import partition_layer as partition_layer
from .online import OnlinePartition as OnlinePartition
from .online import Split as Split
from .problem import Decision as Decision
from .problem import PartitionProblem as PartitionProblem
from .problem import Times as Times
from .table import CostTable as CostTable
