"""Proof that a cell gives the same outputs in a plain ipykernel and in ours."""
