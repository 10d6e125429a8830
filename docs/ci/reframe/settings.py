"""ReFrame on one machine, without a scheduler.

A cluster has its own settings, and gemmbench asks nothing special of them. A partition under Slurm, say:

    {"name": "gpu", "scheduler": "slurm", "launcher": "local", "access": ["--partition=gpu", "--gpus=8"],
     "environs": ["default"]}
"""

site_configuration = {
    "systems": [
        {
            "name": "generic",
            "hostnames": [".*"],
            "partitions": [
                {"name": "here", "scheduler": "local", "launcher": "local", "environs": ["default"]}
            ],
        }
    ],
    "environments": [{"name": "default"}],
}
