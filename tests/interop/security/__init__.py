"""Tests of every client with every kind of listener: right credentials, wrong ones, and none."""
