"""What a mapping of config.yaml is made of: sections, types of their values, and what is wrong with one."""
