"""Every command's options, each declared once: the command line and the API are made of them."""
