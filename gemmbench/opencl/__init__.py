"""OpenCL: drivers, discovery, building and launching, PTX, resources."""
