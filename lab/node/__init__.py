"""`fedstride node`: a SuperNode whose processes for messages start warm, as forks of one process with all imports."""
