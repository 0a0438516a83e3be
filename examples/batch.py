"""Runs 200 cells on 20 kernels, and shows the progress."""

from kernelbox import Pool

cells = [f"import math; math.factorial({number}) % 1000003" for number in range(200)]

with Pool(20) as pool:
    results = []
    for result in pool.map(cells):
        results.append(result)
        print(f"\r{len(results)} of {len(cells)}", end="")

print("", results[10].return_value)  # 628791
