"""Every command's options, declared once for the command line and the API."""
