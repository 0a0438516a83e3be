"""Mistakes that models make, by which is measured what they have to read of them."""

from __future__ import annotations

# What models get wrong on most days, a cell each.
MISTAKES = (
    "total = price * quantiy",
    "df = pd.DataFrame({'a': [1]})\ndf['b']",
    "import pandas as pd\ndf = pd.DataFrame({'a': [1]})\ndf['b']",
    "import pandas as pd\npd.read_csv('missing.csv')",
    "'1' + 1",
    "[1, 2][5]",
    "{'a': 1}['b']",
    "def f(:\n    pass",
    "def f(n):\n    return f(n + 1)\nf(0)",
    "import sklearn_missing",
    "import math\nmath.squrt(2)",
    "import asyncio\nasync def main(): return 1\nasyncio.run(main())",
    "import json\njson.loads('{bad}')",
    "int('twelve')",
    "import numpy as np\nnp.ones((2, 3)) @ np.ones((2, 3))",
)
