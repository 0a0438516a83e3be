"""The files about kernels and jobs in a home: records, names, state, notes about deaths, journals."""
