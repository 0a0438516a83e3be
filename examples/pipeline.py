"""A data pipeline built step by step: the dataframe stays in the kernel."""

import os
import tempfile

from kernelbox import destroy, execute, get_or_create

with tempfile.TemporaryDirectory() as folder:
    csv = os.path.join(folder, "data.csv")
    with open(csv, "w") as file:
        file.write("city,people\nUlm,126\nBern,\nGraz,292\n")

    kernel = get_or_create("pipeline", cwd=folder)
    execute(kernel, "import pandas as pd")
    execute(kernel, "df = pd.read_csv('data.csv')")
    execute(kernel, "df = df.dropna()")
    result = execute(kernel, "df.shape")
    print(result.return_value)  # (2, 2)
    execute(kernel, "df.to_json('clean.json')")
    print(os.listdir(folder))
    destroy("pipeline")
