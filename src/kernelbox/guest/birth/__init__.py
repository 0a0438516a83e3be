"""How a kernel is born: the template, its forks, and the keeper that learns how each one ends."""
