"""What samples say: break-even sizes."""
