"""Protocol Buffers: schemas as text or descriptors, and their compatibility by the rules of Confluent's registry."""
