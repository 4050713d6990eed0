"""`klamm audit detect`: runs detections, and writes each finding once, as OCSF, to a file, a webhook and a topic."""
