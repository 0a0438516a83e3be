"""The soak: many processes use shared kernels at random while some are killed, and what was promised is checked."""
