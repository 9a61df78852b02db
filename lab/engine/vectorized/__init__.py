"""The engine `vectorized`: several clients of a round train at once, as one tensor program.

Outside of this folder only `engine.py` knows it, by `VectorizedGrid`, `ON_A_PROCESSOR` and `trial_step.obstacle`.
"""
