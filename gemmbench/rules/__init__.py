"""What is decided without a device: the ladder, the probes, the plan, when to stop sampling."""
