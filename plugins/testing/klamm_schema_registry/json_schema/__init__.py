"""JSON Schema: schemas of drafts 4 to 2020-12, and their compatibility by the rules of Confluent's registry."""
