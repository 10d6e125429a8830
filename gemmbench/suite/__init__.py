"""From a plan to rows: selection, session, several devices at once, what is cached between runs."""
