"""From a plan to rows: selection, session, `auto`, several devices at once, what is cached between runs."""
