"""Robots in MuJoCo: the dense tasks of section 7.2, the hand of section 7.1 and the maze of section 7.3."""
