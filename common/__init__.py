"""The ground floor: errors and files. Knows nothing of experts or machines."""
