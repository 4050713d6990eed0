"""Protocol Buffers: schemas as text or descriptors, and the rules of Confluent's registry for their compatibility."""
