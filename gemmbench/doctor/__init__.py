"""What keeps a machine from its ceiling, and what to type: it reads, and changes nothing."""
