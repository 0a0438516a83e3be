"""What a result can do: fail, fit a budget, become messages for a model, and be shown in a notebook."""
