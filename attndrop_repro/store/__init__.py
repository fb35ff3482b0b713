"""The results store and the checkpoint format: schema, writer, reader."""
