"""Avro: schemas as Avro's Java library reads and writes them, and its rules of schema resolution."""
