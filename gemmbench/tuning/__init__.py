"""The tuner: kernel-tuner's strategies over a variant's space, measured as every command measures."""
