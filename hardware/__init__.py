"""Machines: bytes, FLOPs, links, clocks, joules. Has never heard of an expert."""

from .platform import Platform as Platform
from .platform import load_platform as load_platform
from .platform import platform_names as platform_names
