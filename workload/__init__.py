"""What the model computes: models, routing traces, decode steps. Has never heard of a machine."""

from .load import Load as Load
from .model import MoEModel as MoEModel
from .model import load_model as load_model
from .model import model_names as model_names
from .replay import replay as replay
from .replay import split as split
from .trace import RoutingTrace as RoutingTrace
from .trace import read_trace as read_trace
from .trace import write_trace as write_trace
