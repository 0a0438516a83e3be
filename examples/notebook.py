"""In a notebook a result shows its tables and plots as if the cell had run there."""

from kernelbox import Kernel

kernel = Kernel("notebook", destroy=True)
with kernel:
    print(kernel.execute("import pandas as pd\npd.DataFrame({'a': [1, 2]})")._repr_mimebundle_().keys())  # text/html
