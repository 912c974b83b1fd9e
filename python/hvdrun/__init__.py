"""hvdrun: collective operations for the workers of a distributed job, on NumPy arrays and other buffers."""
