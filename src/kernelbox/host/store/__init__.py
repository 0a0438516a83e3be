"""What is kept about kernels and jobs in a home: records, names, state, notes about deaths, journals."""
