"""Avro: schemas in the form of Avro's Java library, and the rules of schema resolution."""
