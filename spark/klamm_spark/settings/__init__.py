"""The settings of the observer, of the commands and of detections."""
