# Defines nothing.
