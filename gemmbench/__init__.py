"""gemmbench: how fast an OpenCL device really is at matrix multiplication."""

__version__ = "0.1.0"
