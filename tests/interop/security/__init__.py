"""Every client through every kind of listener: right credentials, wrong ones, and none."""
