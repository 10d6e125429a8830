"""From a plan to rows: selection, session, what is cached between runs."""
