"""Files of the exporter: mounts that hang, refused access, state that survives a crash, tokens."""
