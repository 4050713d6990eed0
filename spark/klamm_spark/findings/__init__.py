"""`klamm audit detect`: what the detections find, each once, as OCSF in a file, to a webhook and to a topic."""
